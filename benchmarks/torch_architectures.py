"""Architectures of torchvision and timm as exported programs and as TorchScript, against eager PyTorch.

    python benchmarks/torch_architectures.py [--state FILE] [NAME...]      # prints its study

Each is saved as .pt2 (torch.export) and as a traced .pt, read by npuflow's front end, and run by onnxruntime.
Rows are kept in FILE, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from npuflow.base.errors import NpuflowError
from npuflow.frontends.torch.load import converted
from npuflow.ir.packed import unpack
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

TORCHVISION = {
    "alexnet": 96, "densenet121": 64, "efficientnet_b0": 64, "googlenet": 64, "inception_v3": 96,
    "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "regnet_x_400mf": 64,
    "regnet_y_400mf": 64, "resnet18": 64, "resnet50": 64, "resnext50_32x4d": 64, "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64, "vgg11_bn": 64, "convnext_tiny": 64, "swin_t": 64, "vit_b_32": 224,
    "lraspp_mobilenet_v3_large": 64,
}
TIMM = {
    "hardcorenas_a": 64, "ghostnet_050": 64, "tf_efficientnet_lite0": 64, "lcnet_050": 64,
    "deit_tiny_patch16_224": 224, "mixer_s32_224": 224, "mobileone_s0": 64, "repvgg_a0": 64,
    "edgenext_xx_small": 64, "mobilevit_xxs": 64, "poolformer_s12": 64, "convmixer_768_32": 64,
}


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The architecture with random weights, whose norms are not the identity, and an input."""
    torchvision, timm = packages()
    torch.manual_seed(0)
    if name in TORCHVISION:
        more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        if name.startswith("lraspp"):
            more = {"weights_backbone": None}
        made, size = torchvision.models.get_model(name, weights=None, **more), TORCHVISION[name]
    else:
        made, size = timm.create_model(name, pretrained=False), TIMM[name]
    for key, value in made.state_dict().items():
        if key.endswith("running_mean"):
            value.normal_(0, 0.1)
        elif key.endswith("running_var"):
            value.uniform_(0.5, 1.5)
    for value in made.parameters():
        if not value.any():  # a head of zeros would compare nothing
            torch.nn.init.normal_(value, 0, 0.05)
    return made.eval(), torch.randn(1, 3, size, size)


def packages() -> tuple[Any, Any]:
    """torchvision and timm, where both are there and fit torch."""
    try:
        import timm
        import torchvision
    except ImportError as fault:
        raise SystemExit("pip install torchvision timm") from fault
    except RuntimeError as fault:  # compiled for another torch
        raise SystemExit(
            f"the installed torchvision does not fit torch {torch.__version__}:"
            f" {' '.join(str(fault).split())}; install the one released with it"
        ) from fault
    return torchvision, timm


def first(outputs: Any) -> np.ndarray:
    while not isinstance(outputs, torch.Tensor):
        outputs = next(iter(outputs.values() if isinstance(outputs, dict) else outputs))
    return outputs.numpy()


def row(architecture: str, folder: Path) -> dict[str, str]:
    """The largest difference over the largest value, by form; or why there is none."""
    module, x = network(architecture)
    with torch.no_grad():
        wanted = first(module(x))
    found: dict[str, str] = {"input": str(x.shape[-1])}
    for form in (".pt2", ".pt"):
        path, started = folder / f"net{form}", time.time()
        try:
            if form == ".pt2":
                torch.export.save(torch.export.export(module, (x,)), path)
                data, _ = converted(path, {})
            else:
                traced = torch.jit.trace(module, x, strict=False, check_trace=False)
                torch.jit.save(traced, path)
                name = list(traced.graph.inputs())[1].debugName().split(".")[0]
                data, _ = converted(path, {name: tuple(x.shape)})
        except NpuflowError as fault:
            found[form] = " ".join(str(fault).split())[:160]
            continue
        except Exception as fault:
            found[form] = f"PyTorch: {type(fault).__name__}: {' '.join(str(fault).split())[:120]}"
            continue
        graph, _ = unpack(data)
        got = np.asarray(run(export_model(graph), {graph.inputs[0]: x.numpy()})[0])
        found[form] = f"{np.abs(got - wanted).max() / np.abs(wanted).max():.1e}"
        found["nodes"] = str(len(graph.nodes))
        found["s"] = f"{time.time() - started:.0f}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*TORCHVISION, *TIMM])
    kept = Path(tempfile.gettempdir()) / "torch_architectures.json"
    parser.add_argument("--state", type=Path, default=kept)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = json.loads(args.state.read_text()) if args.state.is_file() else {}
    for name in args.names:
        if name in rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows[name] = row(name, Path(folder))
            except Exception as fault:
                rows[name] = {".pt2": f"{type(fault).__name__}: {' '.join(str(fault).split())[:140]}"}
        args.state.write_text(json.dumps(rows))
        sys.stderr.write(f"{name}: {rows[name]}\n")
    print("# Architectures of torchvision and timm against PyTorch\n")
    print("Largest difference of the first output over its largest value, eager PyTorch against the graph")
    print("that the front end reads; random weights. `benchmarks/torch_architectures.py` prints this page.\n")
    print("| architecture | input | nodes | .pt2 | TorchScript |")
    print("| --- | --- | --- | --- | --- |")
    for name in [one for one in (*TORCHVISION, *TIMM) if one in rows]:
        one = rows[name]
        cells = [one.get(key, "-") for key in ("input", "nodes", ".pt2", ".pt")]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
