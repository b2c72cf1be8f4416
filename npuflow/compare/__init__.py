"""Comparing two sets of tensors."""
