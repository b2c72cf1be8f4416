"""Metrics against small cases worked by hand, and what evaluation adds to them."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.base.tables import FilePath
from npuflow.checks.evaluate import labels_there, ready, score
from npuflow.metrics import METRICS, Metric, is_ragged, stacked

LOGITS = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]], np.float32)


def run(
    name: str, out: np.ndarray, labels: list | None = None, reference: np.ndarray | None = None, **options
) -> dict:
    metric: Metric = METRICS[name](**options)
    return metric({"y": out}, {"y": out if reference is None else reference}, labels)


def test_classification() -> None:
    assert run("top1", LOGITS, [1, [2, 0], 1, 0]) == {"top1": 0.75}
    assert run("topk", LOGITS, [2, 1, 0, 2], k=2) == {"top2": 0.5}
    other = LOGITS.copy()
    other[0] = [1, 0, 0]
    assert run("agreement", other, reference=LOGITS) == {"agreement": 0.75}


def test_agreement_counts_the_answer_of_each_step_along_an_axis() -> None:
    steps = np.stack([LOGITS, LOGITS])                               # [samples, steps, classes]
    other = steps.copy()
    other[0, 0] = [9, 0, 0]
    assert run("agreement", other, reference=steps) == {"agreement": 0.5}          # a sample is one row
    for axis in (1, -1):
        assert run("agreement", other, reference=steps, axis=axis) == {"agreement": 0.875}
    turned = run("agreement", other.swapaxes(1, 2), reference=steps.swapaxes(1, 2), axis=0)
    assert turned == {"agreement": 0.875}
    with pytest.raises(DataError, match=r"no dimension 2: a sample is .4, 3.") as fault:
        run("agreement", other, reference=steps, axis=2)
    assert fault.value.hint == "axis = -2 to 1"


def test_agreement_takes_the_axis_of_its_own_output_and_keeps_a_stated_one() -> None:
    axes = {"y": None, "z": -2}
    made = METRICS["agreement"]
    assert made().along(axes) == made()
    assert made(output="z").along(axes) == made(output="z", axis=-2)
    assert made(output="z", axis=-1).along(axes) == made(output="z", axis=-1)
    assert METRICS["top1"]().along(axes) == METRICS["top1"]()


@pytest.mark.parametrize("name", ["top1", "topk"])
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([77] * 4, "no label is a class of the output, which has 3.*from 77 to 77"),
        ([-3, -2, -3, -3], "no label is a class of the output.*from -3 to -2"),
        (["shoe", 0, 1, 2], "must be class numbers.*1 of 4 samples.*'shoe' .sample 1"),
        ([0, 1, 0.25, 0.5], "must be class numbers.*2 of 4 samples.*0.25 .sample 3"),
        ([0, 1, [2, "x"], 1], "must be class numbers.*'x' .sample 3"),
    ],
)
def test_labels_that_are_no_classes_are_refused(name: str, labels: list, said: str) -> None:
    with pytest.raises(DataError, match=said):
        run(name, LOGITS, labels)


def test_some_labels_may_lie_outside_and_whole_fractions_are_classes() -> None:
    assert run("top1", LOGITS, [1.0, -1, 2, 77]) == {"top1": 0.5}


def test_samples_without_labels_are_named() -> None:
    with pytest.raises(DataError, match=r"1 of 3 samples have none.*the first is b"):
        labels_there(METRICS["top1"](), "top1", {"a": 1, "b": None, "c": 2})
    labels_there(METRICS["sqnr"](), "sqnr", {"b": None})


def test_sqnr() -> None:
    truth = np.array([[3.0, 4.0]])
    assert run("sqnr", truth + np.array([[0.0, 0.5]]), reference=truth)["sqnr_db"] == pytest.approx(
        10 * math.log10(25 / 0.25)
    )
    assert run("sqnr", truth, reference=truth)["sqnr_db"] == 200.0


def test_detection_by_hand() -> None:
    truth = [[[0, 0, 10, 10, 0], [20, 20, 10, 10, 0]], [[5, 5, 10, 10, 0]]]
    rows = np.zeros((2, 3, 6))
    rows[0, 0] = [0, 0, 10, 10, 0.9, 0]          # hit
    rows[0, 1] = [1, 0, 11, 10, 0.8, 0]          # suppressed by the first
    rows[0, 2] = [40, 40, 50, 50, 0.7, 0]        # false
    rows[1, 0] = [5, 5, 15, 15, 0.6, 0]          # hit
    found = run("detection", rows, truth, decoder="boxes")
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["ap50"] == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 3)


def test_detection_counts_classes_apart() -> None:
    truth = [[[0, 0, 10, 10, 0], [0, 0, 10, 10, 1]]]
    rows = np.array([[[0, 0, 10, 10, 0.9, 0], [0, 0, 10, 10, 0.8, 1]]], float)
    assert run("detection", rows, truth, decoder="boxes") == {
        "f1": 1.0,
        "precision": 1.0,
        "recall": 1.0,
        "ap50": 1.0,
    }
    swapped = np.array([[[0, 0, 10, 10, 0.9, 0], [0, 0, 10, 10, 0.8, 0]]], float)
    assert run("detection", swapped, truth, decoder="boxes")["ap50"] == 0.5


def test_yolox_heads_are_decoded() -> None:
    cells = 4 + 1
    rows = np.full((1, cells, 6), -5.0)
    rows[..., 4:] = 0.0
    # cell (1, 1) of stride 8: centre 12, 12; 16 x 8
    rows[0, 3] = [0.5, 0.5, math.log(2), math.log(1), 1.0, 0.9]
    found = run("detection", rows, [[[4, 8, 16, 8]]], size=(16, 16), strides=(8, 16))
    assert found == {"f1": 1.0, "precision": 1.0, "recall": 1.0, "ap50": 1.0}     # overlap 96 of 128
    missed = run("detection", rows, [[[4, 8, 16, 8]]], size=(16, 16), strides=(8, 16), overlap=0.8)
    assert missed["recall"] == 0.0
    exact = run("detection", rows, [[[4, 8, 12, 8]]], size=(16, 16), strides=(8, 16))
    assert exact["ap50"] == 1.0                                      # clipped to the picture
    with pytest.raises(DataError, match="does not fit"):
        run("detection", rows, [[]], size=(32, 32), strides=(8, 16))


def test_spearman(tmp_path: Path) -> None:
    assert run("spearman", np.array([[1.0], [5.0], [9.0], [20.0]]), [1, 2, 3, 4])[
        "spearman"
    ] == pytest.approx(1.0)
    assert run("spearman", np.array([[1.0], [5.0], [9.0]]), [3, 2, 1])["spearman"] == pytest.approx(-1.0)
    np.savez(tmp_path / "p.npz", pairs=np.array([[0, 1], [0, 2], [1, 2]]), scores=np.array([0.1, 0.2, 0.9]))
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    pairs = FilePath("p.npz", tmp_path / "p.npz")
    assert run("spearman", rows, pairs=pairs)["spearman"] == pytest.approx(0.5)


class Fixed:
    """A model that answers from a table."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def run_many(self, samples):
        return [{"y": self.rows[int(s["x"])][None]} for s in samples]


def test_evaluation_compares_with_the_float_model() -> None:
    other = LOGITS.copy()
    other[0] = [1, 0, 0]
    samples = [({"x": np.array(i % 4)}, t) for i, t in enumerate([1, 0, 2, 0] * 20)]
    found = score(samples, Fixed(other), Fixed(LOGITS), METRICS["top1"](), "top1", 0.9)
    assert (found.figures, found.baseline) == ({"top1": 0.75}, {"top1": 1.0})
    assert found.delta == {"top1": -0.25}
    assert (found.agreement, found.samples, found.npu_macs) == (0.75, 80, 0.9)
    assert found.beside == {"top1": 1.0} and replace(found, baseline={"psnr_db": 100.0}).beside == {}
    noise = float(((other - LOGITS) ** 2).sum())
    assert found.sqnr_db["y"] == pytest.approx(10 * math.log10(float((LOGITS**2).sum()) / noise), rel=1e-5)


def test_missing_labels_are_told() -> None:
    with pytest.raises(DataError, match="needs labels"):
        score([({"x": np.array(0)}, None)], Fixed(LOGITS), Fixed(LOGITS), METRICS["top1"](), "top1", 1.0)


def ragged(*rows: list[list[float]]) -> dict[str, np.ndarray]:
    return stacked([{"y": np.array(row, np.float32).reshape(-1, 2)} for row in rows])


def test_outputs_of_changing_shape_are_compared_where_shapes_match() -> None:
    truth, found = ragged([[3, 4]], [[1, 2], [3, 4]], []), ragged([[3, 4.5]], [[1, 2]], [])
    assert is_ragged(truth["y"]) and METRICS["agreement"]()(found, truth, None) == {
        "agreement": pytest.approx(2 / 3)
    }
    assert METRICS["sqnr"]()(found, truth, None)["sqnr_db"] == pytest.approx(20.0)
    other = ragged([[1, 1], [1, 1]], [[1, 2]], [[0, 0]])
    assert METRICS["sqnr"]()(other, truth, None) == {"sqnr_db": -200.0}
    with pytest.raises(DataError, match="has no scores"):
        METRICS["top1"]()(truth, truth, [0, 1, 0])
    both = {**truth, "scores": np.eye(3, dtype=np.float32)}
    assert METRICS["top1"]()(both, both, [0, 1, 0]) == {"top1": pytest.approx(2 / 3)}


def test_an_evaluation_counts_samples_of_other_shapes() -> None:
    class Model:
        def __init__(self, *rows: int) -> None:
            self.rows = rows

        def run_many(self, samples: list) -> list:
            return [{"y": np.ones((n, 2), np.float32)} for n in self.rows]

    found = score([({}, None)] * 3, Model(1, 2, 0), Model(1, 1, 0), METRICS["agreement"](), "agreement", 1.0)
    assert (
        found.unlike == {"y": 1}
        and found.sqnr_db == {"y": 200.0}
        and found.figures["agreement"] == pytest.approx(2 / 3)
    )
    none = score([({}, None)], Model(2), Model(1), METRICS["agreement"](), "agreement", 1.0)
    assert none.unlike == {"y": 1} and none.sqnr_db == {} and none.figures["agreement"] == 0


def test_cosine_is_that_of_the_angles() -> None:
    real = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    found = run("cosine", np.array([[4.0, 3.0], [2.0, 0.0], [0.0, 0.0]], np.float32), reference=real)
    assert found == pytest.approx({"cosine": (24 / 25 + 2) / 3, "cosine_worst": 24 / 25})
    assert run("cosine", real)["cosine_worst"] == 1.0


def test_images_against_the_float_model_s() -> None:
    rng = np.random.default_rng(0)
    real = rng.random((2, 3, 16, 16)).astype(np.float32)
    moved = real + np.float32(0.1)
    assert run("psnr", moved, reference=real, peak=1.0)["psnr_db"] == pytest.approx(20.0, abs=1e-4)
    assert run("psnr", real) == {"psnr_db": 100.0}
    assert run("ssim", real)["ssim"] == pytest.approx(1.0)
    worse = run("ssim", real + rng.normal(0, 0.3, real.shape).astype(np.float32), reference=real, peak=1.0)
    assert 0.2 < worse["ssim"] < 0.8
    flat = np.full((1, 1, 8, 8), 0.5, np.float32)          # c1 alone: (2ab + c1) / (a^2 + b^2 + c1)
    assert run("ssim", flat * 2, reference=flat, peak=1.0)["ssim"] == pytest.approx(1.0001 / 1.2501)
    with pytest.raises(DataError, match="no image"):
        run("ssim", np.zeros((1, 4), np.float32))


def test_segmentation() -> None:
    maps = np.array([[[0, 0, 1], [1, 2, 2]]])
    scores = np.eye(3, dtype=np.float32)[maps].transpose(0, 3, 1, 2)
    label = [[[0, 1, 1], [1, 2, 255]]]
    found = run("miou", scores, label)
    assert found == pytest.approx({"miou": (1 / 2 + 2 / 3 + 1) / 3, "pixel_accuracy": 4 / 5})
    assert run("miou", maps.astype(np.float32), label, classes=3) == pytest.approx(found)
    for wrong in ([[[0, 1]]], [[[0, 1, 1], [1, 7, 2]]]):
        with pytest.raises(DataError):
            run("miou", scores, wrong)


def test_words_and_characters() -> None:
    symbols = "ab "
    text = [1, 1, 0, 1, 2, 0, 3, 3, 2]                              # "aab" and "b" around a blank
    scores = np.eye(4, dtype=np.float32)[[text]]
    assert run("wer", scores, ["aab b"], alphabet=symbols) == {"word_accuracy": 1.0, "wer": 0.0, "cer": 0.0}
    found = run("wer", scores, ["ab b"], alphabet=symbols)
    assert found == pytest.approx({"word_accuracy": 0.5, "wer": 0.5, "cer": 0.25})
    last = run("wer", np.roll(scores, -1, -1), ["aab b"], alphabet=symbols, blank=-1)
    assert last["wer"] == 0.0
    with pytest.raises(DataError, match="alphabet"):
        run("wer", scores, ["a"])


BOXES, STEPS, MAPS = np.zeros((2, 3, 6)), np.ones((2, 9, 29)), np.ones((2, 3, 4, 4))
LABELS = {"coco": [[], []], "detection": [[], []], "wer": ["a", "b"], "miou": [np.zeros((4, 4))] * 2}


@pytest.mark.parametrize(
    "name",
    ["agreement", "coco", "cosine", "detection", "miou", "psnr", "sqnr", "ssim", "top1", "topk", "wer"],
)
def test_an_output_that_the_model_lacks_is_named_with_those_it_has(name: str) -> None:
    if name == "coco":
        pytest.importorskip("pycocotools", reason="npuflow[coco] is not installed")
    metric = METRICS[name](output="logit")
    outputs = {"logits": np.ones((2, 3, 8, 8)), "boxes": BOXES}
    for ask in (lambda: metric(outputs, outputs, LABELS.get(name, [0, 1])), lambda: metric.ready(outputs)):
        with pytest.raises(DataError, match='no output "logit"') as told:
            ask()
        assert "logits, boxes" in told.value.because and '"logits"' in told.value.hint
    METRICS[name](output="boxes").ready(outputs)


@pytest.mark.parametrize(
    ("name", "out", "labels", "options", "said", "because"),
    [
        ("coco", BOXES, [[], 3], {}, "lists of boxes", "sample 2 of the evaluation is 3"),
        ("coco", BOXES, ["cat", []], {}, "lists of boxes", "is cat"),
        ("detection", BOXES, [[[1, 2, 3]], []], {}, "lists of boxes", "1, 2, 3"),
        ("detection", BOXES, [[[1, 2, 3, "4"]], []], {}, "lists of boxes", "sample 1"),
        ("coco", BOXES[..., :4], [[], []], {}, "does not fit the decoder", r"shape \[3, 4\]"),
        ("coco", BOXES[:, 0, 0], [[], []], {}, "does not fit the decoder", r"shape \[1, 1\]"),
        ("detection", BOXES, [[], []], {"decoder": "yolox"}, "does not fit the yolox", "3549 cells"),
        ("wer", STEPS, ["a", [1, 2]], {}, "labels must be texts", "sample 2"),
        ("wer", STEPS, ["HI", "HO"], {}, "no letter of the labels", "of 'HIO'"),
        ("wer", STEPS, ["a", "b"], {"blank": 29}, "no scores of a blank at place 29", "every symbol"),
        ("wer", STEPS[:, 0, 0], ["a", "b"], {}, r"an output of shape \[\]", "every symbol"),
        ("miou", MAPS, ["a.png", "b.png"], {}, "maps of classes", "is a.png"),
        ("miou", MAPS, [[[0, 1], [0]]] * 2, {}, "maps of classes", "sample 1"),
        ("miou", MAPS, [[[0.5] * 4] * 4] * 2, {}, "maps of classes", "0.5"),
        ("miou", MAPS, LABELS["miou"], {"axis": 5}, "no scores along axis 5", ""),
        ("miou", MAPS, LABELS["miou"], {"classes": 21}, "neither scores of 21 classes nor", ""),
        ("miou", MAPS[:, 0, 0, 0], LABELS["miou"], {}, "no scores along axis 0", ""),
        ("spearman", np.ones((2, 1)), ["a", "b"], {}, "a number as its label", "its label is 'a'"),
    ],
)
def test_labels_and_outputs_of_another_form_are_told(
    name: str, out: np.ndarray, labels: list, options: dict, said: str, because: str
) -> None:
    if name == "coco":
        pytest.importorskip("pycocotools", reason="npuflow[coco] is not installed")
    kind = {"decoder": "boxes"} if name in ("coco", "detection") else {}
    with pytest.raises(DataError, match=said) as told:
        run(name, out, labels, **{**kind, **options})
    assert told.match(because) and told.value.hint and told.value.code


def test_faults_of_a_metric_have_its_table_as_their_place() -> None:
    with pytest.raises(DataError, match="lists of boxes") as told:
        score(
            [({"x": np.array(0)}, 3)], Fixed(BOXES), Fixed(BOXES), METRICS["detection"](decoder="boxes"),
            "detection", 1.0,
        )
    assert told.value.where.key == "evaluate.detection"
    with pytest.raises(DataError, match="no output") as told:
        ready(METRICS["psnr"](output="z"), "evaluate.psnr", ["y"])
    assert told.value.where.key == "evaluate.psnr"


def test_coco_averages_over_overlaps() -> None:
    pytest.importorskip("pycocotools", reason="npuflow[coco] is not installed")
    label = [[0.0, 0.0, 10.0, 10.0, 1]]
    exact, most = (np.array([[[0, 0, w, 10, 0.9, 1]]], np.float32) for w in (10, 8))
    best = {"ap": 1.0, "ap50": 1.0, "ap75": 1.0}
    assert run("coco", exact, [label], decoder="boxes") == pytest.approx(best)
    found = run("coco", most, [label], decoder="boxes")             # overlap .8: .50 to .80 of ten steps
    assert found == pytest.approx({"ap": 0.7, "ap50": 1.0, "ap75": 1.0}, abs=0.01)
    assert run("coco", exact, [[]], decoder="boxes")["ap"] == 0.0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(DataError, match="pycocotools"):
        run("coco", np.zeros((1, 1, 6), np.float32), [[]], decoder="boxes")
    with pytest.raises(DataError, match="pycocotools"):              # and before samples are run
        METRICS["coco"]().ready(["y"])


def test_a_function_of_the_user_s(tmp_path: Path) -> None:
    text = """
def right(outputs, reference, labels):
    (scores,) = outputs.values()
    return {"right": float((scores.argmax(-1) == labels).mean()), "samples": len(labels)}

def gap(outputs, reference, labels):
    return abs(outputs["y"] - reference["y"]).max()

def odd(outputs, reference, labels):
    return "much"

def broken(outputs, reference, labels):
    return outputs["absent"]
"""
    (tmp_path / "own_scores.py").write_text(text)

    def address(name: str) -> FilePath:
        return FilePath(f"python:own_scores.py:{name}", tmp_path / "own_scores.py")

    assert run("python", LOGITS, [1, 0, 1, 0], function=address("right")) == {"right": 0.75, "samples": 4.0}
    assert run("python", LOGITS, function=address("gap"), labels=False) == {"gap": 0.0}
    assert METRICS["python"](function=address("gap")).needs_labels
    assert not METRICS["python"](function=address("gap"), labels=False).needs_labels
    for name, said in (("odd", "gives no figures"), ("broken", "fails"), ("absent", "has no function")):
        with pytest.raises(DataError, match=said):
            run("python", LOGITS, [0] * 4, function=address(name))
    with pytest.raises(DataError, match="needs a function"):
        labels_there(METRICS["python"](), "python", {"a": 1})


def test_a_label_beside_the_scores_is_not_taken_for_them() -> None:
    """As classifiers of scikit-learn give them: the label first."""
    outputs = {"label": np.array([2, 0]), "scores": np.array([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1]], np.float32)}
    assert METRICS["top1"]()(outputs, outputs, [2, 1]) == {"top1": 0.5}
    assert METRICS["top1"](output="label")(outputs, outputs, [0, 0]) == {"top1": 1.0}
