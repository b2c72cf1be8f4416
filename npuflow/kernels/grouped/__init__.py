"""Products with weights in groups that have float16 scales."""
