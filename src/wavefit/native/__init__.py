"""The engine: ONNX graphs on kernels of our own. graph and passes, layout, memory, program; opencl/ runs it."""
