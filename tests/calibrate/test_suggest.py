"""What statistics suggest, and the pictures of them."""

from __future__ import annotations

import xml.etree.ElementTree as Xml
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from npuflow.engine.calibrate.observe import Counter
from npuflow.engine.calibrate.statistics import Statistics, merged
from npuflow.engine.fidelity import Fidelity
from npuflow.engine.report.plot import Panel, png, svg
from npuflow.engine.report.suggest import _channels as channels
from npuflow.engine.report.suggest import suggestions
from npuflow.ir.types import Array, QuantType


def of(rows: list[Array]) -> Statistics:
    counter = Counter(("x",))
    found = merged((f"s{i}", counter.observe([row])) for i, row in enumerate(rows))
    assert found is not None
    return found


def kinds(rows: list[Array], **more: object) -> list[str]:
    found = of(rows)
    return [one.kind for one in suggestions(found["x"], found.samples, **more)]  # type: ignore[arg-type]


@pytest.fixture
def normal() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=4000).astype(np.float32) for _ in range(8)]


def test_a_good_tensor_gets_no_advice(normal: list[Array]) -> None:
    assert kinds(normal) == []
    assert kinds(normal, span=(-4.0, 4.0), quant=QuantType(8, False, (8 / 255,), (128,)), quality=Fidelity(30.0, 1.0, 0.0)) == []


def test_each_trouble_has_its_word(normal: list[Array]) -> None:
    spiked = [row.copy() for row in normal]
    for row in spiked:
        row[0] = 60.0
    assert kinds(spiked) == ["outliers"]
    one = [row.copy() for row in normal]
    one[5][:40] = 12.0
    assert kinds(one) == ["one sample"]
    told = suggestions(of(one)["x"], of(one).samples)
    assert '"s5" alone reaches 12' in told[0].text
    assert kinds([np.full(50, 3.0, np.float32)] * 5) == ["constant"]
    assert kinds([np.concatenate([np.zeros(3990, np.float32), row[:10]]) for row in normal])[0] == "dead"
    assert kinds([np.append(row, np.float32(np.nan)) for row in normal]) == ["not finite"]
    assert kinds(normal, span=(-1.0, 1.0)) == ["saturation"]
    assert kinds(normal, span=(-400.0, 400.0), quant=QuantType(8, True, (3.2,), (0,))) == ["few codes"]


def test_noise_is_told_where_it_is_made(normal: list[Array]) -> None:
    assert kinds(normal, quality=Fidelity(5.0, 0.9, 0.0), before=25.0) == ["noise"]
    assert kinds(normal, quality=Fidelity(5.0, 0.9, 0.0), before=6.0) == []
    assert kinds(normal, quality=Fidelity(5.0, 0.9, 0.0)) == ["noise"]


def test_channels() -> None:
    even = np.linspace(0.5, 1.0, 32)
    assert [s.kind for s in channels(even)] == []
    assert [s.kind for s in channels(np.append(even, [1e-9, 0.0]))] == ["dead channels"]
    assert [s.kind for s in channels(np.append(even, np.full(8, 0.001)))] == ["uneven channels"]


def test_pictures_have_the_panels_and_thresholds(normal: list[Array]) -> None:
    one = of(normal)["x"]
    counts = one.histogram(40, one.lo, one.hi).tolist()
    panels = [Panel("a <tensor> & more", one.lo, one.hi, counts, (-2.0, 9.0), ["line one"]), Panel("empty", 1.0, 1.0, [])]
    drawn = Xml.fromstring(svg(panels))
    texts = [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "a <tensor> & more" in texts and "line one" in texts and "-2" in texts and "empty" in texts
    bars = [r for r in drawn.iter("{http://www.w3.org/2000/svg}rect") if r.get("fill") == "#2f6fb0"]
    assert len(bars) == sum(c > 0 for c in counts)
    picture = Image.open(BytesIO(png(panels, zoom=1)))
    width, height = int(drawn.get("width", 0)), int(drawn.get("height", 0))
    assert picture.size == (width, height)
    found = {picture.getpixel((x, y)) for x in range(0, width, 2) for y in range(0, height, 2)}
    assert (0x2F, 0x6F, 0xB0) in found and (0xF3, 0xE3, 0xE3) in found
