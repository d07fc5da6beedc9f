"""What `enginetop doctor` makes of facts: findings with a level and a fix. Pure; the facts are gathered by
`enginetop.cli`.
"""
