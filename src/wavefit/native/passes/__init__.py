"""What is done to a graph before it is laid out, in this order: one pass a file, each a function of the graph."""
