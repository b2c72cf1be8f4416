"""Every kind of detection head against an implementation in numpy that shares nothing with it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.base.tables import read
from npuflow.hw.target import Numerics
from npuflow.input.postprocess import SELECTED, Postprocess, recognised, with_boxes
from npuflow.ir.graph import Graph
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session
from npuflow.testing.rule import graph_of
from tests.heads import numpy_boxes as own
from tests.heads.numpy_boxes import SIZE, Found, Heads
from tests.networks.onnx_text import model

WIDE = Numerics(activation_bits=(8, 16))
ANCHORS = [[(10, 13), (33, 23)], [(30, 61), (59, 30)]]
FLAT = [[v for pair in one for v in pair] for one in ANCHORS]
PRIORS = [[(12, 12), (20, 10)], [(30, 30)]]
VARIANCES = (0.1, 0.2, 0.3, 0.4)


def network(heads: Heads) -> Graph:
    """Every head is the image's mean plus an input of its shape: the values come from outside."""
    ports = [f"float[{','.join(map(str, a.shape))}] {n}_in" for n, a in heads.items()]
    given = ", ".join([f"float[1,3,{SIZE[0]},{SIZE[1]}] image", *ports])
    results = ", ".join(p.removesuffix("_in") for p in ports)
    body = "m = ReduceMean<keepdims=0>(image) " + " ".join(f"{n} = Add({n}_in, m)" for n in heads)
    return graph_of(model(f"{given} => {results}", body))


def table(**values: Any) -> Postprocess:
    made, faults = read(Postprocess, values)
    assert made is not None, faults
    return made


def run(graph: Graph, heads: Heads) -> dict[str, Array]:
    feeds = {"image": np.zeros((1, 3, *SIZE), np.float32), **{f"{n}_in": a for n, a in heads.items()}}
    made = host_session(export_model(graph)).run(list(graph.outputs), feeds)
    return dict(zip(graph.outputs, made, strict=True))


def drawn(shapes: Mapping[str, tuple[int, ...]], scale: float = 1.0, seed: int = 3) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=shape) * scale).astype(np.float32) for name, shape in shapes.items()}


def cells(stride: int) -> tuple[int, int]:
    return SIZE[0] // stride, SIZE[1] // stride


def priors() -> Array:
    found = []
    for stride, sizes in zip((16, 32), PRIORS, strict=True):
        high, wide = cells(stride)
        found += [
            [(x + 0.5) * stride, (y + 0.5) * stride, *size]
            for y in range(high) for x in range(wide) for size in sizes
        ]
    return np.array(found, np.float64)


def _yolox() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    heads = drawn({"out": (1, 126, 8)}, 0.5)
    heads["out"][..., 4:] = own.sigmoid(3 * heads["out"][..., 4:])
    return {"kind": "yolox"}, heads, own.yolox(heads), {}


def _yolov3() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    heads = drawn({"a": (1, 16, *cells(16)), "b": (1, 16, *cells(32))})
    options = {"kind": "yolov3", "yolov3": {"anchors": FLAT, "scale_xy": 1.1}}
    return options, heads, own.yolov3(heads, np.array(ANCHORS, float), 1.1), {}


def _yolov5() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    heads = drawn({"a": (1, 14, *cells(16)), "b": (1, 14, *cells(32))})
    options = {"kind": "yolov5", "yolov5": {"anchors": FLAT}}
    return options, heads, own.yolov5(heads, np.array(ANCHORS, float)), {}


def _yolov8_decoded() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = [*rng.uniform(0, 64, (2, 126)), *rng.uniform(4, 40, (2, 126)), *rng.uniform(0, 1, (3, 126))]
    heads = {"out": np.array([rows], np.float32)}
    return {"kind": "yolov8"}, heads, own.yolov8_decoded(heads), {}


def _yolov8() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    heads = drawn({f"s{s}": (1, 66, *cells(s)) for s in (8, 16, 32)}, 2.0)
    return {"kind": "yolov8"}, heads, own.yolov8(heads), {}


def _ssd(how: str, background: int, swapped: bool) -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    heads = drawn({"scores": (1, 54, 3), "offsets": (1, 54, 5)})
    options = {
        "anchors": [[v for pair in one for v in pair] for one in PRIORS], "strides": [16, 32],
        "variances": list(VARIANCES), "order": "yxhw" if swapped else "xywh", "scores": how,
        "growth": "linear" if how == "sigmoid" else "exp", "background": background,
    }
    found = own.ssd(heads, priors(), np.array(VARIANCES), how, background, swapped)
    return {"kind": "ssd", "heads": ["offsets", "scores"], "ssd": options}, heads, found, {"every": True}


def _retinanet() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    levels = list(enumerate((16, 32)))
    shapes = {f"offsets{k}": (1, 36, *cells(s)) for k, s in levels}
    heads = drawn({**shapes, **{f"scores{k}": (1, 18, *cells(s)) for k, s in levels}}, 0.5)
    options = {"kind": "retinanet", "retinanet": {"strides": [16, 32]}, "score": 0.6}
    return options, heads, own.retinanet(heads, (16, 32), 2), {"every": True, "score": 0.6}


def _centernet() -> tuple[dict[str, Any], Heads, Found, dict[str, Any]]:
    heads = drawn({"maps": (1, 2, *cells(8)), "sizes": (1, 2, *cells(8)), "offsets": (1, 2, *cells(8))})
    return {"kind": "centernet"}, heads, own.centernet(heads), {"every": True, "iou": None}


CASES = {
    "yolox": _yolox, "yolov3": _yolov3, "yolov5": _yolov5, "yolov8": _yolov8_decoded, "yolov8 bins": _yolov8,
    "ssd softmax": partial(_ssd, "softmax", 0, False), "ssd linear": partial(_ssd, "sigmoid", -1, False),
    "ssd swapped": partial(_ssd, "softmax", 1, True), "retinanet": _retinanet, "centernet": _centernet,
}


@pytest.mark.parametrize("place", ["host", "npu"])
@pytest.mark.parametrize("name", CASES)
def test_boxes_are_those_of_numpy(name: str, place: str) -> None:
    options, heads, found, more = CASES[name]()
    graph = with_boxes(network(heads), table(place=place, **options), WIDE)
    assert graph.outputs == ("boxes",) and from_text(to_text(graph), graph.consts) == graph
    wanted = own.boxes_of(found, more.pop("score", 0.25), more.pop("iou", 0.45), **more)
    made, after = run(graph, heads)["boxes"], rewrite(graph, careful=True).graph
    assert made.dtype == np.float32 and len(wanted) > 4
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(run(after, heads)["boxes"], wanted, rtol=1e-4, atol=1e-3)
    hosted = [n for n in after.nodes if n.op.hosted and n.op.reason == SELECTED]
    assert {"NonMaxSuppression", "TopK", "Concat"} <= {n.op.op_type for n in hosted}
    if place == "host":
        assert all(n.op.hosted for n in after.nodes if n.name.startswith("boxes/"))


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"most": 3}, {"most": 3}),
        ({"labels": "every"}, {"every": True}),
        ({"agnostic": True}, {"agnostic": True}),
        ({"score": 0.6, "iou": 0.1}, {"score": 0.6, "iou": 0.1}),
        ({"score": 1.0}, {"score": 1.0}),
    ],
)
def test_selection(options: dict[str, Any], more: dict[str, Any]) -> None:
    """Limits, classes and thresholds; without any box the result has no rows."""
    given, heads, found, _ = _yolov8_decoded()
    made = run(with_boxes(network(heads), table(**given, **options), WIDE), heads)["boxes"]
    wanted = own.boxes_of(found, **{"score": 0.25, "iou": 0.45, **more})
    assert made.shape == wanted.shape and made.shape[1] == 6
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-3)


def test_layouts_of_heads_are_equal() -> None:
    """Values last, or anchors on an axis of their own, as exports for other runtimes have them."""
    options, heads, _, _ = _yolov5()
    first = run(with_boxes(network(heads), table(**options), WIDE), heads)["boxes"]
    last = {n: np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for n, a in heads.items()}
    split = {
        n: np.ascontiguousarray(a.reshape(1, 2, 7, *a.shape[2:]).transpose(0, 1, 3, 4, 2))
        for n, a in heads.items()
    }
    for other in (last, split):
        made = run(with_boxes(network(other), table(**options), WIDE), other)["boxes"]
        np.testing.assert_array_equal(made, first)


def test_kinds_are_recognised_by_shapes() -> None:
    for case, kind in ((_yolox, "yolox"), (_yolov8_decoded, "yolov8"), (_centernet, "centernet")):
        _, heads, _, _ = case()
        assert recognised(network(heads)) == (kind,)
        auto = run(with_boxes(network(heads), table(), WIDE), heads)["boxes"]
        stated = run(with_boxes(network(heads), table(kind=kind), WIDE), heads)["boxes"]
        np.testing.assert_array_equal(auto, stated)
    raw = {f"s{s}": np.zeros((1, 18, *cells(s)), np.float32) for s in (8, 16, 32)}
    assert recognised(network(raw)) == ("yolov3", "yolov5", "yolox")
    with pytest.raises(ModelError) as fault:
        with_boxes(network(raw), table(), WIDE)
    assert "yolov3 or yolov5 or yolox" in str(fault.value.because) and fault.value.code == "NF-MODEL-282"


def test_a_target_of_eight_bits_decodes_on_the_host() -> None:
    options, heads, _, _ = _yolox()
    graph = with_boxes(network(heads), table(**options), Numerics(activation_bits=(8,)))
    own_nodes = [n for n in graph.nodes if n.name.startswith("boxes/")]
    assert all(n.op.hosted for n in own_nodes)
    assert any("16 bits, the target has 8" in n.op.reason for n in own_nodes)


def test_other_outputs_stay() -> None:
    heads = drawn({"out": (1, 126, 8), "mask": (1, 1, 4, 4)})
    graph = with_boxes(network(heads), table(kind="yolox", heads=["out"], name="found"), WIDE)
    assert graph.outputs == ("found", "mask")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"kind": "yolox", "classes": 9}, "NF-MODEL-282", "14 for 9 classes"),
        ({"kind": "yolov3"}, "NF-MODEL-282", "1 outputs, but anchors for 3 heads"),
        ({"kind": "yolov8"}, "NF-MODEL-282", "8 boxes, but 126 cells"),
        ({"kind": "ssd"}, "NF-MODEL-282", "two outputs"),
        ({"kind": "retinanet"}, "NF-MODEL-282", "two outputs"),
        ({"kind": "centernet"}, "NF-MODEL-282", "three outputs"),
        ({"kind": "yolox", "size": [32, 32]}, "NF-MODEL-282", "126 rows, but 21 cells"),
        ({"heads": ["other"]}, "NF-MODEL-283", "its outputs are out"),
        ({"name": "image"}, "NF-MODEL-281", ""),
    ],
)
def test_faults_of_the_table(options: dict[str, Any], code: str, said: str) -> None:
    _, heads, _, _ = _yolox()
    with pytest.raises(ModelError) as fault:
        with_boxes(network(heads), table(**options), WIDE)
    assert fault.value.code == code and said in str(fault.value.because or "")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"size": [0, 3]}, "NF-MODEL-278"),
        ({"name": ""}, "NF-MODEL-279"),
        ({"agnostic": True, "labels": "every"}, "NF-MODEL-280"),
        ({"kind": "ssd", "ssd": {"anchors": [[3]]}}, "NF-MODEL-277"),
        ({"kind": "yolo"}, ""),
        ({"score": 2}, ""),
        ({"most": 0}, ""),
        ({"kind": "yolox", "yolox": {"x": 1}}, ""),
    ],
)
def test_faults_of_single_fields(values: dict[str, Any], code: str) -> None:
    made, faults = read(Postprocess, values)
    assert made is None and len(faults) == 1 and (not code or faults[0].code == code)


def test_what_is_no_head() -> None:
    flat = {"scores": np.zeros((1, 10), np.float32)}
    assert recognised(network(flat)) == ()
    with pytest.raises(ModelError) as fault:
        with_boxes(network(flat), table(), WIDE)
    assert fault.value.code == "NF-MODEL-284"
    without = graph_of(model("float[1,126,8] x => float[1,126,8] out", "out = Neg(x)"))
    with pytest.raises(ModelError) as unsized:
        with_boxes(without, table(kind="yolox"), WIDE)
    assert unsized.value.code == "NF-MODEL-285"
