"""The kernel lab: compiling for GPUs that are not here, reading what came out, and searching for the fastest."""
