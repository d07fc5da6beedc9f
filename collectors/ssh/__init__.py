"""Servers behind `ssh`, through the system's own program."""
