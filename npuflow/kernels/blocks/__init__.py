"""Products of numbers in blocks that share an exponent."""
