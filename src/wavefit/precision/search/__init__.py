"""Finds the variants of a model: which nodes are lowered, with what calibration and compensation, and why."""
