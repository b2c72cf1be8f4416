"""Sparse constants of TFLite files against LiteRT, which reads the same tables with code of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from npuflow.base.errors import ModelError
from npuflow.frontends.tflite.schema import parsed
from tests.frontends.test_tflite import outputs
from tests.frontends.tflite_models import Net, reference

VECTORS = {"uint8": schema.Uint8VectorT, "uint16": schema.Uint16VectorT, "int32": schema.Int32VectorT}
KINDS = {
    "uint8": schema.SparseIndexVector.Uint8Vector,
    "uint16": schema.SparseIndexVector.Uint16Vector,
    "int32": schema.SparseIndexVector.Int32Vector,
}


def sparse(
    values: np.ndarray, order: Sequence[int], blocks: dict[int, int], compressed: set[int], kind: str
) -> tuple[schema.SparsityParametersT, np.ndarray]:
    """Tables and stored values; `blocks`: sizes by dimension; `compressed`: levels in CSR."""
    rank, cut = values.ndim, list(blocks)
    outer = [n // blocks.get(d, 1) for d, n in enumerate(values.shape)]
    shape = [v for d in range(rank) for v in ((outer[d], blocks[d]) if d in blocks else (outer[d],))]
    first = np.cumsum([0, *(1 + (d in blocks) for d in range(rank))])
    axes = [int(first[d]) for d in range(rank)] + [int(first[d]) + 1 for d in cut]
    walked = values.reshape(shape).transpose([axes[d] for d in order])
    stated = schema.SparsityParametersT()
    stated.traversalOrder, stated.blockMap, stated.dimMetadata = list(order), cut, []
    entries: list[tuple[int, ...]] = [()]
    for level, size in enumerate(walked.shape):
        made, below, segments = schema.DimensionMetadataT(), [], [0]
        for entry in entries:
            below += [
                (*entry, i) for i in range(size) if level not in compressed or np.any(walked[(*entry, i)])
            ]
            segments.append(len(below))
        if level in compressed:
            made.format = schema.DimensionType.SPARSE_CSR
            for table, held in (("Segments", segments), ("Indices", [e[-1] for e in below])):
                vector = VECTORS[kind]()
                vector.values = held
                setattr(made, f"array{table}", vector)
                setattr(made, f"array{table}Type", KINDS[kind])
        else:
            made.format, made.denseSize = schema.DimensionType.DENSE, size
        stated.dimMetadata.append(made)
        entries = below
    return stated, np.array([walked[e] for e in entries], values.dtype)


def network(
    weights: np.ndarray,
    stored: np.ndarray,
    stated: schema.SparsityParametersT,
    quant: tuple[float, int] | None = None,
) -> bytes:
    net = Net()
    codes = None if quant is None else ([quant[0]], [quant[1]], 0)
    net.tensor("x", [2, weights.shape[1]])
    net.constant("sparse", stored, codes)
    net.graph.tensors[-1].shape, net.graph.tensors[-1].sparsity = list(weights.shape), stated
    net.tensor("w", weights.shape, weights.dtype.name, codes)
    net.op("DENSIFY", ["sparse"], ["w"])
    read = "w"
    if weights.dtype != np.float32:
        read = net.tensor("real", weights.shape)
        net.op("DEQUANTIZE", ["w"], [read])
    net.tensor("y", [2, weights.shape[0]])
    net.op("FULLY_CONNECTED", ["x", read, ""], ["y"], "FullyConnectedOptions", fusedActivationFunction=0)
    return net.done(["x"], ["y"])


def drawn(dtype: str, block: tuple[int, int] = (1, 1)) -> np.ndarray:
    rng = np.random.default_rng(5)
    kept = np.kron(rng.random((12 // block[0], 16 // block[1])) < 0.3, np.ones(block))
    return (rng.normal(size=(12, 16)) * kept * (40 if dtype == "int8" else 1)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(
    ("order", "blocks", "compressed", "kind"),
    [
        ((0, 1), {}, {1}, "uint8"),
        ((1, 0), {}, {1}, "uint16"),
        ((0, 1), {}, set(), "int32"),
        ((0, 1, 2), {1: 4}, {1}, "uint8"),
        ((1, 0, 2, 3), {0: 4, 1: 2}, {1}, "int32"),
        ((0, 1, 3, 2), {0: 4, 1: 2}, {1}, "uint16"),
    ],
)
def test_a_sparse_constant_is_that_of_litert(
    dtype: str, order: tuple[int, ...], blocks: dict[int, int], compressed: set[int], kind: str
) -> None:
    weights = drawn(dtype, (blocks.get(0, 1), blocks.get(1, 1)))
    stated, stored = sparse(weights, order, blocks, compressed, kind)
    assert not compressed or stored.size < weights.size
    data = network(weights, stored, stated, (0.02, 0) if dtype == "int8" else None)
    feed = np.random.default_rng(6).normal(size=(2, 16)).astype(np.float32)
    (wanted,), (got,) = reference(data, [feed]), outputs(data, [feed])
    assert np.any(wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("harm", ["segments", "indices", "order"])
def test_tables_that_do_not_fit_are_damage(harm: str) -> None:
    weights = drawn("float32")
    stated, stored = sparse(weights, (0, 1), {}, {1}, "int32")
    if harm == "segments":
        stated.dimMetadata[1].arraySegments.values[-1] += 1
    elif harm == "indices":
        stated.dimMetadata[1].arrayIndices.values[0] = 16
    else:
        stated.traversalOrder = [0, 0]
    with pytest.raises(ModelError, match="damaged"):
        parsed(network(weights, stored, stated))
