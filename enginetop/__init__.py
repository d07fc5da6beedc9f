"""enginetop: watch and tune live LLM inference fleets from a terminal."""

__version__ = "0.1.0"
