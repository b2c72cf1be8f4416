"""The float graph with thresholds becomes the quantised graph."""
