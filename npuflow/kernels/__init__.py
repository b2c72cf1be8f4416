"""What commands compute, on byte arrays: exact arithmetic and compiled kernels."""
