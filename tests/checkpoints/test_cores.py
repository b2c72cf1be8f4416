"""Language models on targets of several cores, whose borders are parts of what follows the position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.stages.codegen import CompiledProgram
from npuflow.stages.simulate import Simulation
from npuflow.testing.stage import built
from tests.checkpoints.random_llama import write_llama

# more heads than cores
SHAPE = {"width": 256, "feed": 256, "layers": 1, "heads": 9, "keys": 3, "size": 64, "tokens": 128}
RECIPE = """target = "xdna2"
[model]
path = "net"
dims = { chunk = 1, context = 256 }
[data]
source = "calib.npz"
[quantize]
mode = "bf16"
[simulate]
samples = 1
"""


@pytest.mark.slow
def test_cores_hand_on_parts_of_a_cache(tmp_path: Path) -> None:
    """It is smaller at a small index, and lies in the bytes of what a core hands on of a full one."""
    write_llama(tmp_path / "net", SHAPE, 256)
    np.savez(tmp_path / "calib.npz", tokens=np.random.default_rng(0).integers(3, 128, (4, 4, 1, 1)))
    (tmp_path / "net.toml").write_text(RECIPE)
    done = built(tmp_path / "net.toml", tmp_path / "cache", "simulate", ())
    (made,), (found,) = (done.products(name).values() for name in ("codegen", "simulate"))
    assert isinstance(made, CompiledProgram) and isinstance(found, Simulation)
    assert made.program.meta["indices"] and not found.totals["hazards"]
    assert not any(check.different or check.executor for check in found.checks)
