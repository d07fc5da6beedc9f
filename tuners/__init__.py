"""Advice: pure functions from evidence to suggestions. Knows only `enginetop.fleet`."""
