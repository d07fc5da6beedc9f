"""Measurements: each is `python -m bench.NAME` from the checkout; `--json` prints one JSON object as the last line.

Ways that are compared run in one process and take turns. Figures carry their unit in their name.
"""
