"""Train the example network on Fashion-MNIST and write fashion.onnx, calib.npz and
test.npz beside this script.

    pip install torch==2.13.0 onnxscript onnx numpy
    apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb /tmp/fashion-mnist
    python train.py /tmp/fashion-mnist/usr/share/datasets/fashion-mnist

One thread, about a quarter of an hour. The network has what mobile networks have: inverted residual blocks
with depthwise convolutions, batch norms (kept as nodes of their own in the file, so that folding them is the
compiler's work), hard-swish, residual additions and a global average pool.
"""

import argparse
import gzip
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
MEAN, STD = 72.94, 90.02          # of the training set, in units of 0..255
CALIBRATION, TEST = 512, 4000     # images that go into the npz files


def read_idx(path: Path) -> np.ndarray:
    """Images [N, 28, 28] or labels [N] of an idx.gz file, uint8."""
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    shape = np.frombuffer(data, ">i4", rank, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def conv_norm(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Inverted(nn.Module):
    """Widen by 1x1, filter by a depthwise 3x3, narrow by 1x1; with a shortcut where shapes allow."""

    def __init__(self, inputs: int, outputs: int, widen: int, stride: int = 1) -> None:
        super().__init__()
        inner = inputs * widen
        self.shortcut = stride == 1 and inputs == outputs
        self.expand = nn.Sequential(conv_norm(inputs, inner), nn.Hardswish())
        self.depthwise = nn.Sequential(conv_norm(inner, inner, 3, stride, groups=inner), nn.Hardswish())
        self.project = conv_norm(inner, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.shortcut else y


class FashionNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(1, 16, 3), nn.Hardswish())
        self.blocks = nn.Sequential(
            Inverted(16, 24, 3, 2),
            Inverted(24, 24, 3),
            Inverted(24, 48, 3, 2),
            Inverted(48, 48, 3),
            Inverted(48, 48, 3),
            Inverted(48, 80, 3),
            Inverted(80, 80, 3),
        )
        self.head = nn.Sequential(conv_norm(80, 192), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classify = nn.Sequential(nn.Dropout(0.2), nn.Linear(192, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.head(self.blocks(self.stem(x))))


def augment(images: Tensor) -> Tensor:
    """Mirror half of them and shift all by up to two pixels."""
    images = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    dy, dx = torch.randint(0, 5, (2,)).tolist()
    padded = nn.functional.pad(images, (2, 2, 2, 2), value=-MEAN / STD)
    return padded[:, :, dy : dy + 28, dx : dx + 28]


def normalised(images: np.ndarray) -> Tensor:
    return (torch.from_numpy(images.copy()).float().unsqueeze(1) - MEAN) / STD


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    net.eval()
    answers = torch.cat([net(part).argmax(1) for part in images.split(500)])
    return (answers == labels).float().mean().item()


def train(net: nn.Module, images: Tensor, labels: Tensor, epochs: int, batch: int = 128) -> None:
    steps = len(images) // batch
    weights = torch.optim.AdamW(net.parameters(), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(weights, 5e-3, epochs * steps)
    loss = nn.CrossEntropyLoss(label_smoothing=0.05)
    started = time.time()
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(images))[: steps * batch].split(batch):
            weights.zero_grad(set_to_none=True)
            batch_images = augment(images[rows]).contiguous(memory_format=torch.channels_last)
            value = loss(net(batch_images), labels[rows])
            value.backward()
            weights.step()
            schedule.step()
        print(
            f"epoch {epoch + 1}/{epochs}: loss {value.item():.3f}, {time.time() - started:.0f} s", flush=True
        )


def export(net: nn.Module, path: Path) -> None:
    """Opset 17 with a free batch dimension; PRESERVE keeps every batch norm a node."""
    net.eval()
    torch.onnx.export(
        net,
        (torch.zeros(1, 1, 28, 28),),
        str(path),
        dynamo=False,
        opset_version=17,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the four idx.gz files")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    images, labels, test_images, test_labels = (read_idx(args.data / f"{name}-ubyte.gz") for name in names)
    rows = np.sort(np.random.default_rng(0).choice(len(images), CALIBRATION, replace=False))
    np.savez_compressed(args.out / "calib.npz", image=images[rows], label=labels[rows])
    np.savez_compressed(args.out / "test.npz", image=test_images[:TEST], label=test_labels[:TEST])
    net = FashionNet().to(memory_format=torch.channels_last)  # a third faster on a CPU
    print(f"{sum(p.numel() for p in net.parameters()):,} parameters")
    train(net, normalised(images), torch.from_numpy(labels.astype(np.int64)), args.epochs)
    export(net, args.out / "fashion.onnx")
    truth = torch.from_numpy(test_labels.astype(np.int64))
    print(f"top-1 on all 10,000 test images: {accuracy(net, normalised(test_images), truth):.4f}")


if __name__ == "__main__":
    main()
