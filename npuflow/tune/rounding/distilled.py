"""All weights of a network together, trained on calibration samples to give what the float network gives.

The float network teaches: no labels are needed. Weights are on their grids at every step, with
straight-through gradients, and their scales are learned; zeros of pruned weights stay. Beside the outputs,
what leaves each block of layers is compared, since few samples determine few weights from the outputs alone.

Sources: G. Hinton, O. Vinyals, J. Dean, "Distilling the knowledge in a neural network", 2015; A. Romero, N.
Ballas, S. Kahou, A. Chassang, C. Gatta, Y. Bengio, "FitNets: hints for thin deep nets", 2015 (values inside);
S. Esser et al., "Learned step size quantization", 2020; H. Zhang, M. Cisse, Y. Dauphin, D. Lopez-Paz, "mixup:
beyond empirical risk minimization", 2018 (blends of samples, here with the teacher's answer to the blend).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cos, pi
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from npuflow.gradients.distillation import distillation_loss
from npuflow.gradients.fake_quantization import Quantizer
from npuflow.gradients.network import RealNetwork, batched
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph
from npuflow.ir.sparsity import Mask
from npuflow.ir.types import Array
from npuflow.rounders import RoundedWeight
from npuflow.tune import tuned
from npuflow.tune.judge import Judge
from npuflow.tune.rounding.blocks import blocks
from npuflow.tune.rounding.distillation import Distillation
from npuflow.tune.rounding.rounded import Matrix


@dataclass
class TrainedLayer:
    """A weight on its way: real numbers, the grid that they are rounded to, and the layer's bias."""

    name: str
    start: RoundedWeight
    weight: Any
    grid: Quantizer
    keep: Any
    bias: Any
    bias_start: Any

    @classmethod
    def of(
        cls, graph: Graph, name: str, start: RoundedWeight, keep: Array | None, powers: bool
    ) -> TrainedLayer:
        real = torch.from_numpy(decode(start.codes, start.quant).astype(np.float32))
        kept = None if keep is None else torch.from_numpy(keep.astype(np.float32))
        own = graph.const(start.bias) if start.bias else None
        bias = first = None
        if own is not None:
            first = torch.from_numpy(own.astype(np.float32))
            shift = 0.0 if start.shift is None else torch.from_numpy(start.shift).reshape(first.shape)
            bias = torch.nn.Parameter((first + shift).float())
        grid = Quantizer(start.quant, not powers, powers)
        return cls(name, start, torch.nn.Parameter(real), grid, kept, bias, first)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Parameters with their rates, as shares of their own sizes: those of weights and biases by the
        root mean square of the weight, a bias by its own if that is larger."""
        size = float(self.weight.detach().square().mean().sqrt()) or 1.0
        found = [{"params": [self.weight], "unit": size}]
        if self.grid.change.requires_grad:
            found.append({"params": [self.grid.change], "unit": 0.1})
        if self.bias is not None:
            own = float(self.bias.detach().square().mean().sqrt())
            found.append({"params": [self.bias], "unit": max(size, own)})
        return found

    def now(self) -> dict[str, Any]:
        """The constants of the graph as they are."""
        count = self.weight.numel() // len(self.start.quant.scale)
        real = self.weight if self.keep is None else self.weight * self.keep
        found = {self.name: self.grid(real, "half_even", count)}
        return found if self.bias is None else {**found, self.start.bias: self.bias}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def made(self) -> RoundedWeight:
        real = self.weight if self.keep is None else self.weight * self.keep
        quant = self.grid.type()
        codes = encode(real.numpy(), quant).astype(self.start.codes.dtype)
        if self.bias is None:
            return replace(self.start, codes=codes, quant=quant)
        shift = (self.bias.double() - self.bias_start.double()).reshape(-1).numpy()
        return replace(self.start, codes=codes, quant=quant, shift=shift)


def distilled(
    judge: Judge, sources: Mapping[str, Matrix], weights: Mapping[str, RoundedWeight],
    table: Distillation, powers: bool, progress: Callable[[int, int], None],
    kept: Mapping[str, Mask] = MappingProxyType({}),
) -> dict[str, RoundedWeight]:
    """Weights and biases after `table.steps` steps. `sources`: layers by weight; `weights`: where codes
    start; `powers`: scales are powers of two, and stay. `kept`: of pruned weights, what is not zero, in
    the form of the layer's matrix. Weights with scales by groups of input channels stay."""
    graph, fit = judge.graph, judge.fit
    network, layers = RealNetwork(graph), list[TrainedLayer]()
    for name, start in weights.items():
        if name not in sources or start.quant.group:
            continue
        mask = kept.get(name)
        keep = None if mask is None else sources[name].tensor_of(mask.astype(np.float64), "bool")
        layers.append(TrainedLayer.of(graph, name, start, keep, powers))
    nodes = {at for at, n in enumerate(graph.nodes) if any(v in weights for v in n.inputs)}
    inner = [one.result for one in blocks(graph, nodes) if one.result not in graph.outputs]
    groups = [group for one in layers for group in one.groups]
    optimizer = torch.optim.Adam(groups, lr=table.rate, betas=(0.9, 0.99))
    rng, given = np.random.default_rng(table.seed), batched(fit, graph.inputs)
    fixed = {
        name: torch.from_numpy(decode(one.codes, one.quant).astype(np.float32))
        for name, one in weights.items()
    }
    order, warm = np.zeros(0, np.int64), max(1.0, table.steps * tuned.DISTILL_WARM_UP)
    for step in range(table.steps):
        while len(order) < min(table.batch, len(fit)):
            order = np.concatenate([order, rng.permutation(len(fit))])
        rows, order = order[: table.batch], order[table.batch :]
        batch = varied({name: one[rows] for name, one in given.items()}, table, rng)
        now = table.rate * min(1.0, (step + 1) / warm) * 0.5 * (1 + cos(pi * step / table.steps))
        for group in optimizer.param_groups:
            group["lr"] = now * group["unit"]
        loss = _loss(network, batch, fixed, layers, inner, table)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        progress(step + 1, table.steps)
    return {one.name: one.made() for one in layers}


def _loss(
    network: RealNetwork, batch: Mapping[str, Any], fixed: Mapping[str, Any], layers: Sequence[TrainedLayer],
    inner: Sequence[str], table: Distillation,
) -> Any:
    """Of the outputs, and the mean of what is compared inside."""
    graph = network.graph
    outputs = [name for name in graph.outputs if graph.type(name).dtype == "float32"]
    keep = {*outputs, *(inner if table.inner else ())}
    with torch.no_grad():
        wanted = network.run(batch, {}, keep)
    constants = dict(fixed)
    for one in layers:
        constants.update(one.now())
    made = network.run(batch, constants, keep)
    losses = {name: distillation_loss(made[name], wanted[name], form="values") for name in keep}
    total = sum(losses[name] for name in outputs) / len(outputs)
    if table.inner and inner:
        total = total + table.inner * sum(losses[name] for name in inner) / len(inner)
    return total


def varied(batch: Mapping[str, Any], table: Distillation, rng: np.random.Generator) -> dict[str, Any]:
    """Samples [samples, ...] blended with one another and mirrored, as the table says."""
    found = dict(batch)
    count = len(next(iter(found.values())))
    if table.mirror:
        turned = torch.from_numpy(rng.random(count) < 0.5)
        for name, x in found.items():
            if x.dim() == 5 and x.shape[1] == 1:
                found[name] = torch.where(turned.reshape(-1, 1, 1, 1, 1), x.flip(-1), x)
    if table.mix:
        share = np.where(rng.random(count) < table.mix, rng.random(count) / 2, 0.0).astype(np.float32)
        other, part = torch.from_numpy(rng.permutation(count)), torch.from_numpy(share)
        for name, x in found.items():
            by = part.reshape([-1] + [1] * (x.dim() - 1))
            found[name] = x * (1 - by) + x[other] * by
    return found
