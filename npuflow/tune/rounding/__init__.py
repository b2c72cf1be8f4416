"""Rounding of weights by second moments: columns of inputs, Gram sums, one layer at a time, a judge."""
