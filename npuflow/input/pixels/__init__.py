"""Inputs that take pixels as bytes, and the float graph that computes from them."""
