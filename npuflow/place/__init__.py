"""Which nodes run on the NPU and which on the host, and what the host costs."""
