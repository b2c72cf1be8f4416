"""A training loop that can stop and resume: steps, seed, optimiser and masks in one file.

What a step does follows from the state, the step's number and the seed alone: batches are drawn by the seed
and the epoch, and random numbers start anew at every step. So a training that was stopped and resumed gives
the same bytes as one that was not, on the same machine with as many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import cos, pi
from pathlib import Path
from typing import Any

import torch

from npuflow.base.errors import DataError
from npuflow.torch.prepared import PreparedNetwork
from npuflow.torch.pruning import Pruner

Loss = Callable[[PreparedNetwork, Any, Any], Any]


@dataclass
class Training:
    """A loop over batches of `inputs` and `labels`, tensors with samples along the first dimension.

    `labels` may be None. `loss(network, inputs, labels)`: of a batch. `augment`: changes a batch of inputs
    before that. `rate`: of Adam for weights, `scale_rate` for the logarithms of scales; both fall by a cosine
    to nothing, after `warm_up` steps of rising. `freeze_at`: from which share of the steps on running
    statistics stay. `checkpoint`: the file that the state is kept in, every `save_every` steps and at the
    end; if it exists, training goes on from it.
    """

    network: PreparedNetwork
    inputs: Any
    labels: Any
    loss: Loss
    steps: int
    batch: int = 128
    rate: float = 1e-3
    scale_rate: float = 1e-3
    weight_decay: float = 0.0
    warm_up: int = 0
    freeze_at: float = 0.5
    seed: int = 0
    augment: Callable[[Any], Any] | None = None
    pruner: Pruner | None = None
    checkpoint: str | Path | None = None
    save_every: int = 100
    step: int = 0
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        scales = [p for n, p in self.network.named_parameters() if n.endswith(".change") and p.requires_grad]
        known = {id(p) for p in scales}
        others = [p for p in self.network.parameters() if p.requires_grad and id(p) not in known]
        groups = [
            {"params": others, "rate": self.rate, "weight_decay": self.weight_decay},
            {"params": scales, "rate": self.scale_rate, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=self.rate)
        if self.checkpoint is not None and Path(self.checkpoint).is_file():
            self.load(self.checkpoint)

    def run(
        self, until: int | None = None, report: Callable[[int, float], None] | None = None
    ) -> PreparedNetwork:
        """Steps up to the last one, or to `until`; the network in evaluation mode."""
        self.network.train()
        last = self.steps if until is None else min(until, self.steps)
        while self.step < last:
            value = self.one()
            if report is not None:
                report(self.step, value)
            if self.checkpoint is not None and (self.step % self.save_every == 0 or self.step == last):
                self.save(self.checkpoint)
        self.network.eval()
        return self.network

    def one(self) -> float:
        """One step, and its loss."""
        torch.manual_seed(self.seed * 1_000_003 + self.step)
        self.network.freeze_batch_norms(self.step >= self.freeze_at * self.steps)
        if self.pruner is not None:
            self.pruner.step(self.step)
        rows = self.rows()
        x = self.inputs[rows]
        x = x if self.augment is None else self.augment(x)
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * self.factor()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.network, x, None if self.labels is None else self.labels[rows])
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.losses.append(float(loss.detach()))
        return self.losses[-1]

    def factor(self) -> float:
        """Of the rates at this step."""
        if self.step < self.warm_up:
            return (self.step + 1) / self.warm_up
        done = (self.step - self.warm_up) / max(self.steps - self.warm_up, 1)
        return 0.5 * (1.0 + cos(pi * done))

    def rows(self) -> Any:
        """Which samples the step takes: every epoch has an order of its own."""
        count = len(self.inputs)
        each = max(count // self.batch, 1)
        epoch, place = divmod(self.step, each)
        order = torch.Generator().manual_seed(self.seed * 7_919 + epoch)
        return torch.randperm(count, generator=order)[place * self.batch : (place + 1) * self.batch]

    # --- state
    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seed": self.seed,
            "losses": list(self.losses),
            "network": self.network.state_dict(),
            "masks": dict(self._masks()),
            "optimizer": self.optimizer.state_dict(),
        }

    def _masks(self) -> Iterator[tuple[str, Any]]:
        for name, key in self.network.mask_keys.items():
            yield name, self.network.masks[key].detach()

    def save(self, path: str | Path) -> None:
        """The state, replaced as a whole: a run that dies leaves the file before."""
        part = Path(f"{path}.part")
        torch.save(self.state(), part)
        part.replace(path)

    def load(self, path: str | Path) -> None:
        """Go on from a file of the same network."""
        try:
            held = torch.load(path, weights_only=True)
            for name, mask in held["masks"].items():
                self.network.set_mask(name, mask)
            self.network.load_state_dict(held["network"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.step, self.seed, self.losses = held["step"], held["seed"], held["losses"]
        except Exception as fault:  # whatever reading and checking of a foreign file raises
            raise DataError(
                f"{Path(path).name} does not hold the state of this training",
                because=f"{type(fault).__name__}: {str(fault)[:300]}".splitlines()[0],
                hint="remove the file, or prepare the network with the recipe that it was written for",
                code="NF-DATA-198",
            ) from fault
