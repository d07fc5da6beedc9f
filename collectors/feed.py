"""From raw answers to observations: which path to ask next, and what the answers mean.

Pure: the live loop and the replay drive the same feed, so a recording tells the same story as the wire did.
"""
