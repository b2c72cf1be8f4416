"""Quantised graphs run on whole tensors, many samples at a time; the bits are the reference interpreter's."""
