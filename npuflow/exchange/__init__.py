"""Floor 3: one format of calibration tables per file."""
