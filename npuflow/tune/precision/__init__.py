"""Clipping ranges and bit widths chosen by what they do to the network's outputs on held-out samples."""
