"""Packs matrices by the library compressed-tensors, with the floats that it unpacks them to.

    python -m tests.checkpoints.make_compressed        # needs torch and compressed-tensors
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "compressed.npz"
CASES = {"4": (4, True), "4-zeros": (4, False), "8": (8, True), "8-zeros": (8, False)}
ROWS, COLUMNS, GROUP = 24, 64, 32


def main() -> None:
    import torch
    from compressed_tensors.compressors import PackedQuantizationCompressor as Packed
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    torch.manual_seed(0)
    held = {}
    for name, (bits, symmetric) in CASES.items():
        weight = torch.randn(ROWS, COLUMNS)
        arguments = QuantizationArgs(
            num_bits=bits, symmetric=symmetric, strategy="group", group_size=GROUP, type="int"
        )
        scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
        scale = (0.01 + 0.2 * torch.rand(ROWS, COLUMNS // GROUP)).half().float()
        half = 1 << (bits - 1)
        zeros = torch.randint(-half, half, scale.shape, dtype=torch.int8)
        state = {"weight": weight, "weight_scale": scale}
        state |= {} if symmetric else {"weight_zero_point": zeros}
        packed = Packed.compress(state, scheme)
        floats = Packed.decompress(packed, scheme)["weight"]
        packed["weight_scale"] = packed["weight_scale"].half()
        held |= {f"{name}/{key}": tensor.numpy() for key, tensor in packed.items()}
        held[f"{name}/expected"] = floats.numpy()
    np.savez(FILE, **held)


if __name__ == "__main__":
    main()
