"""What makes up for int8's rounding: scales moved between layers, biases and weights that are right together."""
