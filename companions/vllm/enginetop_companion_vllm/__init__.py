"""The vLLM side of enginetop: live knobs with a dead man's switch, per-request truth on its page.

Two entry points. `engine_side` runs in every EngineCore process and owns the values; `serving_side` runs in
every API server process, serves the knob API and counts requests. Nothing runs unless ENGINETOP_COMPANION=1.
"""
