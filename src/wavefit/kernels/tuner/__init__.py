"""The search for the fastest configuration: which candidate to try next, what is kept on disk, and replays of it.

Knows no language and no device: a candidate is a dict of parameters with a predicted cost.
"""
