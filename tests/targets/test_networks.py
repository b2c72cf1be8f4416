"""Networks that ship with onnx, MobileNetV2 and the fashion example on every shipped target:
exact, without hazards, at home."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import pytest

from npuflow.testing.target import load
from tests.networks.subjects import Subject, judge, subject
from tests.tiers import covering, tiered

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {path.stem: path for path in sorted((ROOT / "npuflow" / "targets").glob("*.toml"))}
NETWORKS = (
    "fashion",
    "squeezenet",
    "shufflenet",
    "mobilenet_v2",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "densenet121",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
)
SMALL = ("fashion", "squeezenet", "shufflenet", "mobilenet_v2")
POWERS = {                                # shares of the power-of-two parts that refuse grouped convolutions
    ("shufflenet", "dpuczdx8g-b4096"): 0.13, ("shufflenet", "dpucvdx8g"): 0.13,
}
GROUPS, DEEP = "groups = 2 == 1 does not hold", "k = 18432 <= 4096 does not hold"
# what parts cannot do by their makers' word, and the share that is left for them; 0: refused whole
LIMITS = {
    ("bvlc_alexnet", "dpucvdx8g"): (GROUPS, 0.302384),
    ("bvlc_alexnet", "dpuczdx8g-b4096"): (GROUPS, 0.442403),
    ("zfnet512", "dpucvdx8g"): (DEEP, 0.953744),
    ("zfnet512", "dpuczdx8g-b4096"): (DEEP, 0.953744),
    ("bvlc_alexnet", "ethos-u65-256"): ("max(stride_h, stride_w) = 4 <= 3 does not hold", 0.859981),
    ("bvlc_alexnet", "cv18xx"): ("a tile needs 156464 bytes of local memory", 0),
    ("bvlc_alexnet", "zhouyi-z2"): ("a tile needs 336000 bytes of local memory", 0),
}
# the slow suite has every network on two targets, and what is stated above; the campaign the whole product
CASES = [(name, target) for name in NETWORKS for target in TARGETS]
STATED = [*POWERS, *LIMITS]
SLOW = list(dict.fromkeys([*covering(NETWORKS, list(TARGETS), 2), *STATED]))


@lru_cache(maxsize=1)
def network(name: str) -> Subject:
    sys.path.append(str(ROOT / "benchmarks"))
    try:
        import models_targets

        return subject(name, models_targets.network(name))
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "target"), tiered(CASES, SLOW))
def test_network(name: str, target: str) -> None:
    """In full on the small ones; of the large ones every address, hazard and bar, and in full by
    benchmarks/models_targets.py."""
    found = judge(network(name), load(TARGETS[target]), exact=name in SMALL)
    limit, share = LIMITS.get((name, target), ("", 1.0))
    assert not limit or any(limit in why for why in (found.reason, *found.host)), (found.reason, found.host)
    if limit and not share:
        assert found.reason
        return
    assert not found.reason, found.reason
    if limit:
        assert found.share == pytest.approx(share, abs=1e-6), found.host
    else:
        assert found.share >= POWERS.get((name, target), 0.98), found.host
    assert (found.tensors > 10) == (name in SMALL) and found.commands and found.cycles >= found.bound
    assert abs(found.schedule) <= 0.05, f"schedule time {found.schedule:+.1%}"


def test_what_a_judge_tells(tmp_path: Path) -> None:
    """A refusal is a reason, a host node has one, and a share is of multiply-accumulates."""
    from dataclasses import replace

    target = load(TARGETS["edge-4t"])
    one = network("fashion")
    fine = judge(one, target, 1)
    assert not fine.reason and fine.share == 1.0 and fine.tensors > 40 and fine.cycles > fine.bound > 0
    tiny = replace(target, memory=replace(target.memory, local_bytes=256))
    assert "too few" in judge(one, tiny, 1).reason
    few = replace(target, limits=replace(target.limits, refuse=("conv",)))
    found = judge(one, few, 1, exact=False)
    assert found.share < 0.2 and any("conv" in h and "does not run" in h for h in found.host)
