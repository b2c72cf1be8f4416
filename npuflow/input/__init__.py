"""Inputs of a network: calibration samples, pixels, preprocessing and postprocessing.

Noun: `Sample`.
Public: `Data`, `Preprocess`, `Pixels`, `samples`, `gathered`.
Does not know: codes of inner tensors, programs.
"""
