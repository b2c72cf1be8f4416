"""Train the example network for the integers of a target, from the float weights in fashion.onnx.

    python train_quantized.py /tmp/fashion-mnist/usr/share/datasets/fashion-mnist --weights 3 --activations 4

The data are those of train.py. Quantised weights and scales learn from the labels and from the float model's
outputs; the state lies beside the output file, and a second call goes on where the first was stopped. With
--pattern 2:4 the layers that can have it lose two of every four weights on the way.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from train import FashionNet, accuracy, augment, normalised, read_idx

from npuflow.torch import Pruner, PruningSchedule, Training, convert, distillation_loss, prepare

HERE = Path(__file__).resolve().parent


def float_network() -> FashionNet:
    """The network with the weights of fashion.onnx."""
    stored = onnx.load(HERE / "fashion.onnx").graph.initializer
    arrays = {one.name: torch.from_numpy(onnx.numpy_helper.to_array(one).copy()) for one in stored}
    net = FashionNet()
    net.load_state_dict({**net.state_dict(), **{k: v for k, v in arrays.items() if k in net.state_dict()}})
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the four idx.gz files")
    parser.add_argument("--weights", type=int, default=3, help="bits")
    parser.add_argument("--activations", type=int, default=4, help="bits")
    parser.add_argument("--ends", type=int, default=0, help="bits of first and last layer; 0: as others")
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--pattern", default="", help="of zeros: 2:4, rows, outputs")
    parser.add_argument("--steps", type=int, default=6400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=2.0, help="of the distillation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=3e-3, help="of the weights, at its highest")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("fashion.qdq.onnx"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    images, labels, test_images, test_labels = (read_idx(args.data / f"{name}-ubyte.gz") for name in names)
    x, truth = normalised(test_images), torch.from_numpy(test_labels.astype(np.int64))
    calibration = normalised(np.load(HERE / "calib.npz")["image"][:256])
    teacher = float_network().to(memory_format=torch.channels_last)  # a third faster on a CPU
    widths: dict[str, Any] = {"weights": {"bits": args.weights}, "activations": {"bits": args.activations}}
    if args.ends:
        bits = {"weight_bits": args.ends, "input_bits": args.ends}
        widths["overrides"] = [{"layers": ["stem.0.0", "classify.1"], **bits}]
    network = prepare(teacher, {"target": args.target, "quantize": widths}, calibration)
    found = {"float": accuracy(teacher, x, truth), "start": accuracy(network, x, truth)}
    print(f"float {found['float']:.4f}, quantised before training {found['start']:.4f}", flush=True)

    def loss(network: torch.nn.Module, batch: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            known = teacher(batch)
        made = network(batch)
        soft = distillation_loss(made, known, args.temperature)
        return torch.nn.functional.cross_entropy(made, wanted) + 2 * soft

    schedule = PruningSchedule(0, args.steps // 3, 20)
    pruner = Pruner(network, args.pattern, schedule=schedule) if args.pattern else None
    training = Training(
        network,
        normalised(images),
        torch.from_numpy(labels.astype(np.int64)),
        loss,
        args.steps,
        batch=args.batch,
        rate=args.rate,
        scale_rate=2e-3,
        warm_up=100,
        seed=args.seed,
        augment=augment,
        pruner=pruner,
        checkpoint=args.out.with_suffix(".state"),
    )
    started, spent = time.time(), time.process_time()

    def report(step: int, value: float) -> None:
        if step % 50 == 0:
            mean = sum(training.losses[-50:]) / 50
            print(f"step {step}/{args.steps}: loss {mean:.3f}, {time.time() - started:.0f} s", flush=True)

    training.run(report=report)
    found.update(
        after=accuracy(network, x, truth),
        seconds=time.time() - started,
        processor_seconds=time.process_time() - spent,
        steps=training.step,
        weights=args.weights,
        activations=args.activations,
        pattern=args.pattern,
        zeros=pruner.zeros() if pruner else 0.0,
    )
    convert(network, args.out)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
