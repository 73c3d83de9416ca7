"""The engine on OpenCL: kernel templates, the tuner's view of a device, the session."""
