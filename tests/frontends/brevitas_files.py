"""Writes brevitas_files.npz: small networks as Brevitas 0.13 exports them, an input and Brevitas' output.

    pip install torch onnx onnxoptimizer qonnx brevitas==0.13.4
    python tests/frontends/brevitas_files.py
"""

import tempfile
from pathlib import Path

import brevitas.nn as quantised
import numpy as np
import torch
from brevitas.export import export_onnx_qcdq, export_qonnx
from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat, Int32Bias
from brevitas.quant.fixed_point import Int8ActPerTensorFixedPoint, Int8WeightPerTensorFixedPoint
from torch import nn

NETWORKS = {"8 bits": (8, False), "4 bits": (4, False), "powers of two": (8, True)}
FORMS = {"qonnx": export_qonnx, "qcdq": export_onnx_qcdq}


def network(bits: int, fixed: bool) -> nn.Module:
    """Convolutions, one of them depthwise, and a dense layer; weights per channel, or powers of two."""
    weights = {"weight_quant": Int8WeightPerTensorFixedPoint if fixed else Int8WeightPerChannelFloat}
    weights["weight_bit_width"] = bits
    act = Int8ActPerTensorFixedPoint if fixed else Int8ActPerTensorFloat
    return nn.Sequential(
        quantised.QuantIdentity(act_quant=act, bit_width=8, return_quant_tensor=True),
        quantised.QuantConv2d(3, 8, 3, padding=1, bias=True, bias_quant=Int32Bias, **weights),
        quantised.QuantReLU(bit_width=bits, return_quant_tensor=True),
        quantised.QuantConv2d(8, 8, 3, padding=1, groups=8, bias=False, **weights),
        quantised.QuantReLU(bit_width=bits, return_quant_tensor=True),
        nn.AvgPool2d(4),
        nn.Flatten(),
        quantised.QuantLinear(8 * 4, 5, bias=True, bias_quant=Int32Bias, **weights),
    )


def main() -> None:
    torch.manual_seed(0)
    held = {}
    for name, (bits, fixed) in NETWORKS.items():
        net = network(bits, fixed).train()
        for _ in range(40):
            net(torch.randn(4, 3, 8, 8))
        net.eval()
        x = torch.randn(1, 3, 8, 8)
        y = net(x)
        held[f"{name}: x"] = x.numpy()
        held[f"{name}: y"] = getattr(y, "value", y).detach().numpy()
        for form, export in FORMS.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "net.onnx"
                export(net, args=x, export_path=str(path), opset_version=14, dynamo=False)
                held[f"{name}: {form}"] = np.frombuffer(path.read_bytes(), np.uint8)
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **held)


if __name__ == "__main__":
    main()
