"""Engines in Kubernetes: changed by the object that owns their flags, or not at all."""
