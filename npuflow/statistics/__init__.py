"""What the samples show of every tensor, and the thresholds that follow from it."""
