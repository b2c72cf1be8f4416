"""Real numbers on the grid of a quantised type: straight-through gradients for them, LSQ's for the scales.

Source: S. Esser et al., "Learned step size quantization", 2020 (the gradient of a scale, and what it is
divided by). A scale is held as its start times the exponential of a parameter, so that a step of an optimiser
is a relative change whatever the scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from npuflow.gradients import kernels
from npuflow.gradients.kernels import MODES
from npuflow.hw.target import Rounding
from npuflow.ir.types import FloatType, QuantType

FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
Tensor = torch.Tensor


def rounded(ratio: Any, rounding: Rounding) -> Any:
    """Whole numbers by a target's rounding."""
    if rounding == "half_up":
        return torch.floor(ratio + 0.5)
    if rounding == "half_away":
        return torch.trunc(ratio + torch.copysign(torch.full_like(ratio, 0.5), ratio))
    return torch.trunc(ratio) if rounding == "truncate" else torch.round(ratio)


class FakeQuantize(torch.autograd.Function):  # type: ignore[misc]
    """scale * clamp(R(x / scale), low, high) with one scale; the ends count from the zero point."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any, low: int, high: int, rounding: Rounding) -> Any:
        x = x if _dense(x) else x.contiguous()
        ctx.save_for_backward(x, scale)
        ctx.numbers = np.float32(scale.item()), np.float32(low), np.float32(high), MODES.index(rounding)
        y = torch.empty_like(x)
        kernels.forward(_flat(x), _flat(y), *ctx.numbers)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, scale = ctx.saved_tensors
        if gradient.stride() != x.stride():
            gradient = torch.empty_like(x).copy_(gradient)
        of_x = torch.empty_like(x)
        of_scale = kernels.backward(_flat(x), _flat(gradient), _flat(of_x), *ctx.numbers)
        return of_x, torch.full_like(scale, of_scale), None, None, None


def _dense(x: Any) -> bool:
    """Whether the elements lie in memory without gaps, in whatever order."""
    step = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1:
            if stride != step:
                return False
            step *= size
    return True


def _flat(x: Any) -> Any:
    """The elements in the order of memory."""
    return torch.as_strided(x.detach(), (x.numel(),), (1,)).numpy()


class FakeQuantizeChannels(torch.autograd.Function):  # type: ignore[misc]
    """The same with scales that broadcast over the tensor."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any, low: int, high: int, rounding: Rounding) -> Any:
        ratio = x / scale
        codes = rounded(ratio, rounding).clamp_(low, high)
        ctx.save_for_backward(ratio, codes, scale)
        ctx.ends = low, high
        return codes * scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ratio, codes, scale = ctx.saved_tensors
        low, high = ctx.ends
        inside = (ratio >= low - 0.5) & (ratio <= high + 0.5)
        of_scale = None
        if ctx.needs_input_grad[1]:
            along = [d for d in range(scale.dim()) if scale.shape[d] == 1]
            of_scale = (gradient * (codes - ratio * inside)).sum(along, keepdim=True)
        return gradient * inside, of_scale, None, None, None


class StraightRound(torch.autograd.Function):  # type: ignore[misc]
    """Half to even, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def damped(x: Any, share: float) -> Any:
    """The number itself, with a share of its gradient."""
    return x * share + (x * (1.0 - share)).detach()


class Quantizer(torch.nn.Module):  # type: ignore[misc]
    """The type of one value, or of all that share a scale. `learned`: whether its scale is a parameter."""

    def __init__(self, quant: QuantType, learned: bool, power_of_two: bool = False) -> None:
        super().__init__()
        self.quant, self.power_of_two = quant, power_of_two
        self.register_buffer("start", torch.tensor(quant.scale, dtype=torch.float32))
        change = torch.zeros(len(quant.scale))
        self.change = torch.nn.Parameter(change, requires_grad=learned)

    def scale(self) -> Any:
        """Scales, one for each of the type's."""
        scale = self.start * torch.exp(self.change)
        if not self.power_of_two:
            return scale
        order = torch.log2(scale)
        return torch.exp2(StraightRound.apply(order))

    def type(self) -> QuantType:
        """The quantised type with the scales as they are."""
        if isinstance(self.quant, FloatType):
            return self.quant
        return self.quant.with_(scale=tuple(self.scale().detach().double().tolist()))

    def forward(self, x: Any, rounding: Rounding, count: int = 1) -> Any:
        """The numbers on the grid. `count`: of elements that share a scale."""
        quant = self.quant
        if isinstance(quant, FloatType):
            return x.to(FLOATS[quant.element]).to(torch.float32)
        scale, zero = self.scale(), quant.zero_point[0]
        if self.change.requires_grad:
            scale = damped(scale, (max(count, 1) * max(quant.hi - zero, 1)) ** -0.5)
        low, high = quant.lo - zero, quant.hi - zero
        if quant.axis is None:
            return FakeQuantize.apply(x, scale, low, high, rounding)
        scale = scale.reshape([-1 if d == quant.axis else 1 for d in range(x.dim())])
        zeros = torch.tensor(quant.zero_point).reshape([-1 if s > 1 else 1 for s in scale.shape])
        low, high = quant.lo - zeros, quant.hi - zeros
        return FakeQuantizeChannels.apply(x, scale, low, high, rounding)
