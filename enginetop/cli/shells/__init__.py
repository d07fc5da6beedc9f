"""Completions for shells, each written from the command line's grammar."""
