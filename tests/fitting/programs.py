"""Programs whose layers a board can be fitted to."""

from __future__ import annotations

import random

from npuflow.hw.target import Numerics
from npuflow.report.fitting.measured import Subject, subject
from npuflow.search.strategies import STRATEGIES
from tests.networks.harness import SMALL, build
from tests.networks.random_networks import network


def in_order(*seeds: int) -> list[Subject]:
    """Random networks whose jobs stay in the program's order, so that a layer's time is its own."""
    without = [one.name for one in STRATEGIES if one.form == "reordered"]
    graphs = {f"n{seed}": network(random.Random(seed), Numerics(), depth=9)[0] for seed in seeds}
    return [subject(name, build(graph, SMALL, without=without)) for name, graph in graphs.items()]
