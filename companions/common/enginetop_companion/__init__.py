"""What the companions of all engines share: knob API, leases, who may ask, and the counts of requests.

Imports nothing of an engine and nothing of enginetop; each companion says how its engine is reached.
"""
