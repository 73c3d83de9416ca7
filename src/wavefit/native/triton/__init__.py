"""The engine in Triton: matrix cores of CDNA, RDNA 3 and later, over PyTorch's memory and streams."""
