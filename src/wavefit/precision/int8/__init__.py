"""int8: ranges of activations, the types that are fast on a target, and Q/DQ pairs in a graph."""
