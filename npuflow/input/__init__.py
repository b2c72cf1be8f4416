"""Inputs of a network: calibration samples, pixels, preprocessing and postprocessing."""
