"""What statistics suggest, and the pictures of them."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.types import Array, QuantType
from npuflow.report.suggest import _channels as channels
from npuflow.report.suggest import channel_suggestions, suggestions
from npuflow.statistics.observe import Counter
from npuflow.statistics.statistics import ObservedStatistics, merged


def of(rows: list[Array]) -> ObservedStatistics:
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
    assert kinds(normal, span=(-4.0, 4.0), quant=QuantType(8, False, (8 / 255,), (128,))) == []


def test_each_trouble_has_its_word(normal: list[Array]) -> None:
    spiked = [row.copy() for row in normal]
    for row in spiked:
        row[0] = 60.0
    assert kinds(spiked) == ["outliers"]
    one = [row.copy() for row in normal]
    one[5][:40] = 12.0
    assert kinds(one) == ["one sample"]
    reported = suggestions(of(one)["x"], of(one).samples)
    assert '"s5" alone reaches 12' in reported[0].text
    assert kinds([np.full(50, 3.0, np.float32)] * 5) == ["constant"]
    assert kinds([np.concatenate([np.zeros(3990, np.float32), row[:10]]) for row in normal])[0] == "dead"
    assert kinds([np.append(row, np.float32(np.nan)) for row in normal]) == ["not finite"]
    assert kinds(normal, span=(-1.0, 1.0)) == ["saturation"]
    assert kinds(normal, span=(-400.0, 400.0), quant=QuantType(8, True, (3.2,), (0,))) == ["few codes"]


def test_channels() -> None:
    even = np.linspace(0.5, 1.0, 32)
    assert [s.kind for s in channels(even)] == []
    assert [s.kind for s in channels(np.append(even, [1e-9, 0.0]))] == ["dead channels"]
    assert [s.kind for s in channels(np.append(even, np.full(8, 0.001)))] == ["uneven channels"]


def test_values_below_half_a_step(normal: list[Array]) -> None:
    """A few large values set the step; most others become 0."""
    wide = [np.append(row * np.float32(0.1), np.float32([-40, 40])) for row in normal]
    quant = QuantType(8, True, (80 / 255,), (0,))
    found = [
        s
        for s in suggestions(of(wide)["x"], of(wide).samples, (-40.0, 40.0), quant)
        if s.kind == "small values"
    ]
    share = np.mean(np.abs(np.concatenate(wide)) < 40 / 255)
    assert f"{100 * share:.0f} %" in found[0].text and "coarser" not in found[0].text
    # an eighth of them is no harm
    assert "small values" not in kinds(normal, span=(-4.0, 4.0), quant=quant)
    coarse = suggestions(of(normal)["x"], of(normal).samples, (-4.0, 4.0), quant.with_(scale=(1.0,)))
    assert "32 times coarser" in next(s for s in coarse if s.kind == "small values").text
    assert "small values" not in kinds(
        wide, span=(-40.0, 40.0), quant=QuantType(16, True, (80 / 65535,), (0,))
    )


def test_channels_of_weights_that_one_scale_loses() -> None:
    tops = np.append(np.linspace(0.5, 1.0, 32), np.full(8, 0.01))
    one = QuantType(8, True, (1 / 127,), (0,))
    found = channels(tops, one)
    assert [s.kind for s in found] == ["lost channels"]
    each = QuantType(8, True, tuple(float(t) / 127 for t in tops), (0,) * 40, axis=0)
    assert list(channels(tops, each)) == []


def test_channels_of_activations() -> None:
    even = np.array([np.full(20, -1.0), np.linspace(1.0, 2.0, 20)])
    assert list(channel_suggestions(even)) == []
    same = np.concatenate([even, [[0.0, 3.0], [0.0, 3.0]]], axis=1)
    reported = list(channel_suggestions(same))
    assert (
        [s.kind for s in reported] == ["dead channels"]
        and "2 of 22" in reported[0].text
        and "channel 20" in reported[0].text
    )
    small = np.concatenate([even, [[-0.001] * 5, [0.001] * 5]], axis=1)
    assert [s.kind for s in channel_suggestions(small)] == ["uneven channels"]
