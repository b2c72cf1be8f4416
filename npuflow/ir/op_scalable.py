"""The operator contract, fourth part: factors and shifts that the constants of an operator can take up."""

from __future__ import annotations

from typing import ClassVar, Self

from npuflow.ir.answers import No
from npuflow.ir.types import Array

Weights = tuple[Array, Array | None]      # a weight and what is added to its products


class Scalable:
    """Products with a constant weight: rules, equalisation and the folding of pixels ask this. The default is
    an operator without a weight."""

    onnx: ClassVar[str]

    def input_channels(self) -> int:
        """The dimension of the input over which products with a constant weight are summed."""
        return 1

    def gain(self) -> float:
        """Real factor on the products with the weight."""
        return 1.0

    def bias_factor(self) -> float:
        """Real factor on the bias."""
        return 1.0

    def of_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        """Weight and bias with which it computes of x what these compute of scale * x + shift, by input
        channel, in float64; a border is left out of account."""
        return No(f"{self.onnx or type(self).__name__} has no constant weight")

    def then_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        """Weight and bias that compute scale * y + shift of its result y, by output channel, in float64, with
        a factor of 1 on the bias."""
        return No(f"{self.onnx or type(self).__name__} has no constant weight")

    def unit_bias(self) -> Self:
        """The operator with a factor of 1 on its bias."""
        return self

    def unit_gain(self) -> Self:
        """The operator with a factor of 1 on its products."""
        return self
