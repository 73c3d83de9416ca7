"""Variants of a model in a lower precision whose answers pass the guard, and the reason for every node kept back.

A graph is an :class:`onnx_ir.Model` as :func:`wavefit.precision.graph.load` gives it; a node is called by its name.
Everything is found on the CPU, with the rounding of a lower precision emulated: no GPU is needed to make a variant.
"""
