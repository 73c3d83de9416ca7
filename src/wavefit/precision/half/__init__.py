"""fp16 and bf16: what half does to a graph, what cannot be half and why, and the typed graph."""
