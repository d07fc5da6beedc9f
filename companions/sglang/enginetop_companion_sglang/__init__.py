"""The SGLang side of enginetop: live knobs with a dead man's switch, per-request truth on its page.

One entry point for every process of the server. In the schedulers it adds handlers for the knobs; the server
process keeps values and leases, serves the knob API and counts requests. Nothing runs unless
ENGINETOP_COMPANION=1.
"""
