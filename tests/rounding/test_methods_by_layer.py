"""Methods of single layers: what a recipe writes below them is what they have."""

from __future__ import annotations

from npuflow.base.tables import read
from npuflow.calibrators.kl import Kl
from npuflow.quantise.config import Quantize
from npuflow.rounders.coordinate import Coordinate
from npuflow.rounders.gptq import Gptq
from npuflow.tune.precision.config import PrecisionTable
from npuflow.tune.rounding.config import RoundTable


def test_a_rounding_method_has_the_options_of_its_own_table() -> None:
    layers = [{"layers": ["/head"], "method": "coordinate", "coordinate": {"sweeps": 3}}]
    table, faults = read(RoundTable, {"method": "gptq", "layers": layers})
    assert table is not None and not faults
    assert table.rounder_of(["/head"], "conv") == Coordinate(sweeps=3)
    assert isinstance(table.rounder_of(["/stem"], "conv"), Gptq)


def test_a_method_for_weights_has_the_options_of_its_own_table() -> None:
    overrides = [{"layers": ["/head"], "weight_method": "kl", "kl": {"bins": 512}}]
    table, faults = read(Quantize, {"overrides": overrides})
    assert table is not None and not faults
    chosen = table.weights_of(["/head"], "conv")
    assert chosen.method == "kl" and chosen.calibrator == Kl(bins=512)
    assert table.weights_of(["/stem"], "conv").method == "minmax"


def test_the_table_of_a_method_has_its_options() -> None:
    table, faults = read(RoundTable, {"method": "coordinate", "coordinate": {"sweeps": 3}})
    assert table is not None and not faults and table.rounder == Coordinate(sweeps=3)


def test_the_table_of_a_search_has_its_options() -> None:
    table, faults = read(PrecisionTable, {"strategy": "ilp", "ilp": {"nodes": 7}})
    assert table is not None and not faults and table.options.nodes == 7
