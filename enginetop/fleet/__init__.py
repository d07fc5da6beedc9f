"""The domain core: what a fleet is, what was measured, and what follows from it.

Pure by rule (import-linter): no I/O, no clock, no threads, nothing else of ours. Every function that needs
"now" takes it as an argument.
"""
