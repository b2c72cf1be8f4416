"""The float graph, after all that the recipe says of its layers, tensors and inputs
has been held against it."""

from __future__ import annotations

from itertools import islice

from npuflow.base.errors import RecipeError
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import stage
from npuflow.input.data.config import Data
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples as read
from npuflow.input.text.model import TextModel
from npuflow.stages._stated import Wishes, faults
from npuflow.stages._targets import Accelerator
from npuflow.stages.parse import Parsed
from npuflow.stages.tiling import shipped_targets

FEW = 3             # samples to look at: the first may be broken
LARGE = 64 << 20    # bytes of a file of many samples beyond which none is read here


def listing(data: Data | None = None, model: TextModel | None = None) -> Listing:
    """Some samples that are cheap to read. What a user's function would yield is left
    to the stage that reads all."""
    if data is None or data.source.text.startswith("python:"):
        return {}
    some = islice(found(data, model).items(), FEW)
    return {
        name: Item(tuple(one.files), dict(one.detail)) for name, one in some
        if all(path.stat().st_size <= LARGE for path in one.files)
    }


@stage(refines="parse", always=True, files=listing, quick=True, minor=True)
def checked(
    graph: Parsed,
    files: Files,
    wishes: Wishes,
    accelerator: Accelerator,
) -> Parsed:
    """Raise all faults together, before anything dear runs; the graph stays as it is."""
    some = dict(read({name: (item.files, item.detail) for name, item in files.items()}))
    target = accelerator.target
    wrong = list(faults(graph.graph, wishes, target, some, graph.applied, shipped_targets))
    if wrong:
        raise RecipeError(wrong)
    return graph
