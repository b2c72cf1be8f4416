"""Every figure is drawn by the plotting library, and shows what it was given."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from npuflow.base.errors import UsageError
from npuflow.report.figures.boxes import boxes
from npuflow.report.figures.builds import pareto
from npuflow.report.figures.export import html, png, svg, write
from npuflow.report.figures.program import kind, maps, memory_map, timeline
from npuflow.report.figures.roofline import brief, roofline
from npuflow.report.figures.spec import Spec
from npuflow.report.figures.tensors import Panel, channels, histogram, quality, sheet

SVG = "{http://www.w3.org/2000/svg}"
BLUE = (0x2F, 0x6F, 0xB0)
PANEL = Panel("a <tensor> & more", -1.0, 3.0, [0, 4, 9, 1], (-0.5, 9.0), ["line one"])


def drawn(spec: Spec) -> ElementTree.Element:
    return ElementTree.fromstring(svg(spec))


def texts(page: ElementTree.Element) -> list[str]:
    return ["".join(t.itertext()) for t in page.iter(f"{SVG}text")]


def titles(page: ElementTree.Element) -> list[str]:
    return [t.text or "" for t in page.iter(f"{SVG}title")]


def marks(page: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """The marks of a kind ("rect", "rule", ...), of all layers."""
    groups = [g for g in page.iter(f"{SVG}g") if f"mark-{name}" in g.get("class", "").split()]
    return [mark for group in groups for mark in group if mark.tag != f"{SVG}title"]


def test_a_sheet_has_every_panel_its_bins_and_its_thresholds() -> None:
    page = drawn(sheet([PANEL, Panel("empty", 1.0, 1.0, [])]))
    assert {"a <tensor> & more", "line one", "empty", "−0.5", "9"} <= set(texts(page))
    blue = [m for m in marks(page, "rect") if m.get("fill") == "#2f6fb0"]
    assert len(blue) == sum(c > 0 for c in PANEL.counts)
    red = [m for m in marks(page, "rule") if m.get("stroke") == "#b5484a"]
    assert len(red) == 2


def test_a_png_has_the_size_and_the_colours_of_the_svg() -> None:
    page, picture = drawn(histogram(PANEL)), Image.open(BytesIO(png(histogram(PANEL)))).convert("RGB")
    assert picture.size == (2 * int(page.get("width", 0)), 2 * int(page.get("height", 0)))
    assert BLUE in {picture.getpixel((x, y)) for x in range(picture.width) for y in (picture.height // 2,)}


def test_thresholds_that_are_not_known_are_not_drawn() -> None:
    page = drawn(histogram(Panel("t", 0.0, 1.0, [1, 2])))
    assert not [m for m in marks(page, "rule") if m.get("stroke") == "#b5484a"]


def test_a_timeline_has_a_bar_for_every_event() -> None:
    events = [[0, 0, 10, 0, "LOAD"], [1, 10, 30, 0, "CONV"], [2, 30, 31, 9, "STORE"]]
    page = drawn(timeline(["0.LOAD0", "0.TENSOR", "0.STORE"], events, ["conv"], 40))
    assert {m.get("fill") for m in marks(page, "rect")} == {"#2f6fb0", "#d9822b", "#4a9d6e"}
    assert {"0.LOAD0", "0.TENSOR", "0.STORE"} <= set(texts(page))
    assert [kind(q) for q in ("LOAD1", "3.VECTOR", "SYNC")] == ["LOAD", "VECTOR", "other"]


def test_a_memory_map_places_lives_by_time_and_address() -> None:
    lives = [
        {"start": 0, "end": 2, "address": 0, "size": 50, "group": 0, "label": "x: 50 bytes"},
        {"start": 2, "end": 4, "address": 50, "size": 50, "group": 25, "label": "y: 50 bytes"},
    ]
    spec = memory_map("external", lives, 100, "step", 4, [{"address": 60, "label": "shared"}])
    page = drawn(maps("network", [spec]))
    assert titles(page) == ["x: 50 bytes", "y: 50 bytes"]
    assert {"network", "external", "shared"} <= set(texts(page))


def test_a_roofline_has_every_layer_and_every_roof() -> None:
    point = {"intensity": 20.0, "rate": 30.0, "cycles": 5.0, "limit": "array"}
    points = [{**point, "name": "/a/Conv"}, {**point, "name": "/b/Conv", "limit": "store"}]
    roofs = [{"name": "array", "rate": 512}, {"name": "depthwise", "rate": 64}]
    page = drawn(roofline("t", points, roofs, [{"name": "external", "rate": 8.0}]))
    assert [t.split(":")[0] for t in titles(page)] == ["/a/Conv", "/b/Conv"]
    assert {"array 512 MAC/cycle", "depthwise 64 MAC/cycle", "external 8 bytes/cycle"} <= set(texts(page))
    assert {"a", "b"} & set(texts(page)) == {"a"}, "a name that would lie on another is left out"
    assert [brief(n) for n in ("/a/b/Conv", "/a/conv", "x" * 40)] == ["a/b", "a/conv", ".." + "x" * 28]


def test_a_sweep_has_its_points_and_its_front() -> None:
    points = [{"ms": 1.0, "mb": 4.0}, {"ms": 2.0, "mb": 3.0}, {"ms": 3.0, "mb": 5.0}, {"ms": 1.0}]
    page = drawn(pareto(["a", "b", "c", "d"], points, [True, True, False, False], "ms", "mb"))
    assert titles(page) == ["a: ms 1, mb 4", "b: ms 2, mb 3", "c: ms 3, mb 5"]
    assert len(marks(page, "line")) == 1 and {"ms", "mb", "Pareto-optimal"} <= set(texts(page))


def test_boxes_have_arrows_words_and_a_legend_of_what_is_there() -> None:
    node = {"below": "ran", "kind": "ran"}
    nodes = {n: {**node, "text": n, "label": f"{n}: because"} for n in ("a", "b", "c")}
    needs = {"a": [], "b": ["a"], "c": ["a", "b"]}
    page = drawn(boxes(nodes, needs, {"ran": ("#fff", "#000"), "hit": ("#eee", "#111")}))
    assert titles(page) == ["a: because", "b: because", "c: because"]
    assert len(marks(page, "line")) == 3 and texts(page).count("ran") == 4 and "hit" not in texts(page)


def test_ranges_of_channels_and_sqnr() -> None:
    page = drawn(channels("t", [-1.0, -2.0, 0.0], [1.0, 2.0, 0.5], (-1.5, 1.5)))
    assert len([m for m in marks(page, "rect") if m.get("fill") == "#2f6fb0"]) == 3
    page = drawn(quality([{"id": "a", "sqnr": 20.0}, {"id": "b", "sqnr": None}, {"id": "c", "sqnr": 3.0}]))
    assert len([m for m in marks(page, "rect") if m.get("fill") == "#2f6fb0"]) == 2


def test_figures_are_written_by_the_suffix_of_the_file(tmp_path: Path) -> None:
    spec = histogram(PANEL)
    for name in ("deep/a.svg", "a.png", "a.html"):
        write(tmp_path / name, spec)
    assert (tmp_path / "deep/a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert "vegaEmbed" in (tmp_path / "a.html").read_text()
    with pytest.raises(UsageError, match=r"neither \.svg nor \.png nor \.html"):
        write(tmp_path / "a.bmp", spec)
    with pytest.raises(UsageError, match="cannot write"):
        write(tmp_path / "a.png/b.svg", spec)


def test_text_of_a_figure_cannot_end_the_script_of_its_page() -> None:
    spec = histogram(Panel("</script><script>alert(1)</script>", 0.0, 1.0, [1]))
    assert "<script>alert" not in html(spec)


def test_only_drawing_imports_the_library() -> None:
    """A build makes specifications; it must not pay for the library that draws them."""
    code = "import sys, npuflow.cli._graph, npuflow.stages.report; sys.exit('vl_convert' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
