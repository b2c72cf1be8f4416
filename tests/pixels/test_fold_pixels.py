"""The float graph over pixels computes what the source model does, but for the padding that is listed."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.input.pixels.fold_pixels import fold
from npuflow.input.pixels.pixel_padding import exactly_padded
from npuflow.ir.queries import kind
from npuflow.onnx.export import export_model
from npuflow.quantise.border import largest
from tests.networks.normalised import (
    FIRST,
    NORMALISATIONS,
    graph_of,
    laid_out,
    network,
    normalised,
    pictures,
    pixels_of,
    session,
)


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("name", NORMALISATIONS)
@pytest.mark.parametrize("copy", [True, False])
def test_the_rewritten_float_graph_is_the_source_model(name: str, first: str, copy: bool) -> None:
    source, pixels = graph_of(first).graph, pixels_of(name, first)
    done = fold(source, {"x": pixels}, copy)
    assert not {"mul", "add", "sub", "div"} & {kind(n) for n in done.graph.nodes}
    plain, made = session(network(first)), session(export_model(done.graph))
    images, real = laid_out(pictures(4), first), laid_out(normalised(pictures(4), name), first)
    raw = images.astype(np.float32) - pixels.zero
    np.testing.assert_allclose(pixels.model(raw), real, rtol=1e-5, atol=1e-5)
    expected, found = (
        np.concatenate([s.run(None, {"x": one[None]})[0] for one in feed])
        for s, feed in ((plain, real), (made, raw))
    )
    size = np.abs(expected).max()
    np.testing.assert_allclose(found[:, :, 1:-1, 1:-1], expected[:, :, 1:-1, 1:-1], atol=1e-4 * size)
    bound = 0.0
    for border in done.borders:
        assert not copy or max(map(abs, border.off)) <= 0.5 + 1e-9
        node = done.graph.producer()[border.output]
        bound = largest(done.graph.const(node.inputs[1]), border.off, border.pads, node.op.group)
        last = source.const(next(n for n in source.nodes if n.outputs[0] == "y").inputs[1])
        bound *= float(np.abs(last).sum(axis=(1, 2, 3)).max())    # through the second layer
    assert np.abs(found - expected).max() <= bound + 1e-4 * size
    if name in ("lite", "unit", "raw") or first == "bare":
        assert bound < 1e-4 * size
    exact = session(export_model(exactly_padded(done.graph, done.borders)))
    found = np.concatenate([exact.run(None, {"x": one[None]})[0] for one in raw])
    np.testing.assert_allclose(found, expected, atol=1e-5 * size)


def test_padding_of_its_own_for_each_channel_is_closer() -> None:
    source, pixels = graph_of("padded").graph, pixels_of("imagenet", "padded")
    (near,), (far,) = (fold(source, {"x": pixels}, copy).borders for copy in (True, False))
    assert max(map(abs, near.off)) <= 0.5 < 5 < max(map(abs, far.off))
    assert near.copied and not far.copied and near.plain == far.off
