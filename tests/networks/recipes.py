"""The recipe that tests write beside a network: its model, and the samples that it is calibrated on."""

from __future__ import annotations

RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "calib.npz"
"""
