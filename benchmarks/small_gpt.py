"""Makes a small pre-norm GPT on characters, trained on the language reference that Python carries.

    python benchmarks/small_gpt.py OUT [--steps 800] [--layers 4] [--width 128] [--threads 2] [--outliers 1]

It needs torch and onnx. Writes OUT/gpt.onnx (`ids` int64 [1, 64] -> `logits` [1, 64, characters]) and, as
.npz files with an array `ids` of samples, OUT/calib.npz (128 windows of the text that it was trained on) and
OUT/eval.npz (200 windows of the last tenth, which it never saw). Prints its loss there in bits a
character. With --outliers S
one channel in sixteen of the normalised values and of the values of attention is S times as large and the
weights that read it so much smaller, as in large language models; the outputs stay as they are.
"""

from __future__ import annotations

import argparse
import math
import pydoc_data.topics
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as f

CONTEXT, HEADS, BATCH = 64, 4, 32


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        mask = torch.full((CONTEXT, CONTEXT), -1e4).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        parts = (
            self.packed(self.before(x)).view(count, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        )
        query, key, value = parts[0], parts[1], parts[2]
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // HEADS) + self.mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(count, length, width)
        x = x + self.out(mixed)
        return x + self.down(f.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    def __init__(self, characters: int, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.positions = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(ids) + self.positions)))


def with_outliers(net: Gpt, factor: float) -> None:
    """The same function with some channels that exceed the others."""
    with torch.no_grad():
        for block in net.blocks:
            width = block.out.in_features
            some = torch.arange(0, width, 16)
            for norm, reader in ((block.before, block.packed), (block.between, block.up)):
                norm.weight[some] *= factor
                norm.bias[some] *= factor
                reader.weight[:, some] /= factor
            block.packed.weight[2 * width + some] *= factor
            block.packed.bias[2 * width + some] *= factor
            block.out.weight[:, some] /= factor


def text() -> np.ndarray:
    """Codes of its characters, the rare ones left out."""
    joined = "\n".join(pydoc_data.topics.topics[key] for key in sorted(pydoc_data.topics.topics))
    raw = np.frombuffer(joined.encode("ascii", "ignore"), np.uint8)
    known = np.flatnonzero(np.bincount(raw, minlength=128) >= 20)
    return np.searchsorted(known, raw[np.isin(raw, known)]).astype(np.int64)


def windows(codes: np.ndarray, count: int, seed: int, length: int = CONTEXT) -> np.ndarray:
    starts = np.random.default_rng(seed).integers(0, len(codes) - length, count)
    return codes[starts[:, None] + np.arange(length)]


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--outliers", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    codes = text()
    kept, last = codes[: len(codes) * 9 // 10], codes[len(codes) * 9 // 10 :]
    net = Gpt(int(codes.max()) + 1, args.layers, args.width)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, args.steps)
    for step in range(args.steps):
        batch = torch.from_numpy(windows(kept, BATCH, step, CONTEXT + 1))
        loss = f.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    net.eval()
    with_outliers(net, args.outliers)
    args.out.mkdir(parents=True, exist_ok=True)
    held = torch.from_numpy(windows(last, 200, 1, CONTEXT + 1))
    with torch.no_grad():
        loss = f.cross_entropy(net(held[:, :-1]).flatten(0, 1), held[:, 1:].flatten())
    print(
        f"{sum(p.numel() for p in net.parameters()):,} parameters, {loss.item() / math.log(2):.2f} bits a "
        f"character of {int(codes.max()) + 1}",
        flush=True,
    )
    np.savez(args.out / "calib.npz", ids=windows(kept, 128, 0)[:, None])
    np.savez(args.out / "eval.npz", ids=held[:, None, :-1].numpy(), next=held[:, 1:].numpy())
    example = torch.zeros(1, CONTEXT, dtype=torch.int64)
    torch.onnx.export(
        net,
        (example,),
        str(args.out / "gpt.onnx"),
        input_names=["ids"],
        output_names=["logits"],
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
