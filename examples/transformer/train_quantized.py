"""Train a transformer block in floats, then for the integers of a target, on data that the script makes.

    python train_quantized.py --weights 4 --activations 8

A sample is a sequence of 12 vectors, each a random symbol of eight plus noise; the answer at every place is
whether the symbol there is the most frequent of the sequence, which takes attention to know.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from npuflow.torch import Training, convert, distillation_loss, prepare

LENGTH, WIDTH, SYMBOLS, HEADS = 12, 32, 8, 4


def samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sequences [N, LENGTH, WIDTH] and answers [N, LENGTH]."""
    made = torch.Generator().manual_seed(seed)
    table = torch.randn(SYMBOLS, WIDTH, generator=torch.Generator().manual_seed(7))
    symbols = torch.randint(0, SYMBOLS, (count, LENGTH), generator=made)
    frequent = nn.functional.one_hot(symbols, SYMBOLS).sum(1).argmax(1)
    noise = 0.3 * torch.randn(count, LENGTH, WIDTH, generator=made)
    return table[symbols] + noise, (symbols == frequent[:, None]).long()


class Block(nn.Module):
    """Attention and two products, each behind a norm and beside a shortcut; an answer for every place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.answer = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        parts = self.qkv(self.norm1(x)).reshape(batch, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return self.answer(x)


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, labels: Tensor) -> float:
    net.eval()
    answers = torch.cat([net(part).argmax(-1) for part in x.split(250)])
    return (answers == labels).float().mean().item()


def train_float(x: Tensor, labels: Tensor, steps: int) -> Block:
    torch.manual_seed(0)
    net = Block()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for step in range(steps):
        rows = torch.randint(0, len(x), (128,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]).flatten(0, 1), labels[rows].flatten()).backward()
        optimizer.step()
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=int, default=4, help="bits")
    parser.add_argument("--activations", type=int, default=8, help="bits")
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--float-steps", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("transformer.qdq.onnx"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    (x, labels), (test_x, test_labels) = samples(20_000, 1), samples(2000, 2)
    teacher = train_float(x, labels, args.float_steps)
    widths = {"weights": {"bits": args.weights}, "activations": {"bits": args.activations}}
    network = prepare(teacher, {"target": args.target, "quantize": widths}, x[:256])
    found = {
        name: accuracy(net, test_x, test_labels) for name, net in (("float", teacher), ("start", network))
    }

    def loss(network: nn.Module, batch: Tensor, wanted: Tensor) -> Tensor:
        with torch.no_grad():
            known = teacher(batch)
        made = network(batch)
        own = nn.functional.cross_entropy(made.flatten(0, 1), wanted.flatten())
        return own + distillation_loss(made, known, 2.0)

    started, spent = time.time(), time.process_time()
    run = Training(
        network,
        x,
        labels,
        loss,
        args.steps,
        rate=1e-3,
        warm_up=20,
        checkpoint=args.out.with_suffix(".state"),
    )
    run.run()
    found.update(
        after=accuracy(network, test_x, test_labels),
        seconds=time.time() - started,
        processor_seconds=time.process_time() - spent,
        steps=run.step,
        weights=args.weights,
        activations=args.activations,
    )
    convert(network, args.out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
