"""Rounding methods, one per file: weights become codes by the second moments of what the layer reads."""
