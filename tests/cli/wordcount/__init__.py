"""A small word-counting pipeline, to test the command line without a tensor in sight."""
