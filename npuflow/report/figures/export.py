"""Figures as files: SVG, PNG, or HTML that needs no network; and the library that draws them in pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from npuflow.base.errors import UsageError
from npuflow.base.memo_file import made_once
from npuflow.report.figures.spec import LIGHT, Spec, config

SVG = "http://www.w3.org/2000/svg"
ZOOM = 2  # pixels of a PNG for one of the figure
FURNITURE = ("axis", "legend", "title", "subtitle")  # what Vega describes beside marks
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><div id="figure"></div>
<script>{library}</script>
<script>vegaEmbed("#figure", {spec}, {{ mode: "vega-lite", actions: false }});</script>
</body></html>
"""


def script() -> str:
    """The JavaScript of the plotting library, for pages that bring it along. It takes seconds to bundle, and
    depends on the library's version alone."""
    made: str = made_once("figures.js.json", f"vl-convert {version('vl-convert-python')}", _bundle)
    return made


def _bundle() -> str:
    import vl_convert

    # Names of its own, of which `window` gets vegaEmbed; and no end of a script inside a script.
    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace(
        "</script", "<\\/script"
    )
    return f"(() => {{{bundle}\n}})();"


def svg(spec: Spec) -> str:
    """SVG text. What a mark says under the pointer is its title, which browsers show."""
    import vl_convert

    ElementTree.register_namespace("", SVG)
    page = ElementTree.fromstring(vl_convert.vegalite_to_svg(themed(spec)))
    for mark in list(page.iter()):
        if mark.get("role") == "graphics-symbol" and mark.get("aria-roledescription") not in FURNITURE:
            title = ElementTree.Element(f"{{{SVG}}}title")
            title.text = mark.get("aria-label")
            mark.insert(0, title)
    return ElementTree.tostring(page, "unicode") + "\n"


def png(spec: Spec) -> bytes:
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(themed(spec), scale=ZOOM))


def html(spec: Spec) -> str:
    return PAGE.format(title="npuflow", library=script(), spec=in_script(themed(spec)))


def in_script(value: Any) -> str:
    """JSON for a script element: no text in it can end the script."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def themed(spec: Spec) -> Spec:
    return {**spec, "config": {**config(LIGHT), **spec.get("config", {})}}


FORMS: dict[str, Callable[[Spec], str | bytes]] = {".svg": svg, ".png": png, ".html": html}


def form_of(path: Path) -> Callable[[Spec], str | bytes]:
    """What draws the form that a file's suffix names; UsageError where none does."""
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(
            f'"{path.name}" is neither .svg nor .png nor .html', hint="FILE.svg", code="NF-USAGE-027"
        )
    return form


def write(path: Path, spec: Spec) -> None:
    """Draw a figure to a file, in the form that its suffix names."""
    drawn = form_of(path)(spec)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn if isinstance(drawn, bytes) else drawn.encode())
    except OSError as fault:
        raise UsageError(
            f'cannot write "{path}"', because=fault.strerror or str(fault), code="NF-USAGE-025"
        ) from fault
