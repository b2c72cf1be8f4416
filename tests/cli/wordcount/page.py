"""A page that lists the words."""

from __future__ import annotations

from npuflow.base.errors import BuildError
from npuflow.flow.stage import stage

from ._data import Page, Page_, Total


@stage
def page(total: Total, page: Page_) -> Page:
    if page.fail:
        raise BuildError(page.fail, because="the recipe asks for it", hint="remove page.fail")
    rows = sorted(total.counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return Page("\n".join([page.title, *(f"{number} {word}" for word, number in rows)]) + "\n")
