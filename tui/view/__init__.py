"""Snapshots to lines of text: pure functions, no widget, no colour."""
