"""Kubernetes: serving pods found through the API server, and read directly or through its pod proxy."""
