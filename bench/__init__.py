"""Measurements: each is `python -m bench.NAME` from the checkout; `--json` ends with one JSON object.

Ways that are compared run in one process and take turns. Figures carry their unit in their name.
"""
