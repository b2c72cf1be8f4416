"""Target files: every fault at once, limits as inequalities with their numbers, and the
suite on every shipped one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow import targets as shipped
from npuflow.base.errors import ModelError, RecipeError
from npuflow.base.tables import read
from npuflow.cli._app import application
from npuflow.flow.recipe import load
from npuflow.hw import limits
from npuflow.hw.target import Compute, LimitRule, Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.place.place import place
from npuflow.program.container import Program, fingerprint, target_meta
from npuflow.search.plan import plan_network
from npuflow.testing import target as suite
from tests.networks.harness import SMALL, build, check_exact, machine
from tests.networks.small import Builder, mixed
from tests.tiers import covering, often, tiered

FOLDER = Path(str(shipped.__file__)).parent
TARGETS = sorted(FOLDER.glob("*.toml"))
by_name = pytest.mark.parametrize("path", TARGETS, ids=lambda p: p.stem)


def test_what_is_shipped() -> None:
    names = {p.stem for p in TARGETS}
    assert names >= {
        "linq-128",
        "bm1684x",
        "xdna2",
        "gc200",
        "cv18xx",
        "aries",
        "dpuczdx8g-b4096",
        "dpucvdx8g",
        "zhouyi-z2",
        "zhouyi-x2",
        "ethos-u65-256",
        "edge-4t",
        "edge-pow2",
        "edge-8t",
        "server-32t",
    }


@by_name
def test_files_say_what_they_are(path: Path) -> None:
    suite.check_words(path)
    suite.check_rules(suite.load(path))
    suite.check_fingerprint(suite.load(path))


@pytest.mark.parametrize("path", often(TARGETS, 6), ids=lambda p: p.stem)
def test_small_network_is_exact_and_near_its_schedule_time(path: Path) -> None:
    target = suite.load(path)
    graph, inputs = mixed(target.numerics)
    check_exact(graph, inputs, target)
    alone = plan_network(graph, machine(target), target.numerics, level=1)
    suite.check_clock(check_exact(graph, inputs, target, alone), 0.15)


@pytest.mark.parametrize(
    ("path", "name"), often(product(TARGETS, ["conv", "gemm", "maxpool", "add"]), 5),
    ids=lambda one: one.stem if isinstance(one, Path) else one,
)
def test_operators(path: Path, name: str) -> None:
    suite.check_operator(suite.load(path), name, most=2)


OPERATORS = sorted(OPS.names())
PAIRS = [(name, path.stem) for name in OPERATORS for path in TARGETS]


@pytest.mark.parametrize(
    ("name", "target"), tiered(PAIRS, covering(OPERATORS, [path.stem for path in TARGETS], 3))
)
def test_every_operator(name: str, target: str) -> None:
    suite.check_operator(suite.load(FOLDER / f"{target}.toml"), name)


def test_all_faults_at_once() -> None:
    tables = {
        "compute": {"cores": 0, "array_rows": "many", "dataflow": "input_stationary", "lanes": 3},
        "numerics": {"weight_bits": [], "rounding": "up", "multiplier_bits": 40},
        "memory": {
            "local_bytes": 100,
            "local_banks": 16,
            "bank_ports": 1,
            "shared_bytes": 1 << 32,
            "external_bytes": 1024,
        },
        "dma": {"channels": 9},
        "limits": {
            "rules": [
                {"operators": ["conv"], "need": "kernel_h <= "},
                {"operators": [], "need": "kernel_z ** 2 <= 4 and 1"},
                {"operators": ["conv"], "need": "kernel_h + 1"},
            ]
        },
    }
    target, faults = read(Target, tables)
    assert target is None
    text = "\n".join(f"{f.where.key}: {f.message} {f.because} {f.hint}" for f in faults)
    for words in (
        "out of range",
        "an integer",
        "input_stationary",
        'unknown key "lanes"',
        '"up" is not allowed',
        "40",
        "100 bytes are not 16 equal banks",
        "shared memory",
        "no inequality",
        "kernel_z",
        "names no operator",
        "compares nothing",
    ):
        assert words in text, f"{words} not in\n{text}"
    assert len(faults) >= 12


@pytest.mark.parametrize(("name", "near"), [("edge-4tt", '"edge-4t"'), ("nothing-beside.toml", "")])
def test_a_missing_parent_hides_no_other_fault(tmp_path: Path, name: str, near: str) -> None:
    """Neither where the file is shown nor where a recipe names it."""
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "{name}"\n[compute]\ncores = 0\n[memory]\nlocal_bytes = -1\n')
    result = CliRunner().invoke(application("targets"), ["targets", str(file)])
    assert isinstance(result.exception, RecipeError)
    faults = list(result.exception.faults())
    assert [f.where.line for f in faults] == [1, 3, 5] and near in faults[0].hint
    assert [f.hint for f in faults[1:]] == ["1 to 64", "1 to 4294967296"]
    recipe = load(None, tables={"target": str(file), "nonsense": {}}, lenient=True)
    assert [f.where.key for f in recipe.faults([Target, Compute, Memory])] == [
        "nonsense", "extends", "target.compute.cores", "target.memory.local_bytes"
    ]
    missing = load(None, tables={"target": "no/such.toml", "nonsense": {}}, lenient=True)
    assert len(missing.faults([Target])) == 2


@pytest.mark.parametrize(
    ("text", "numbers", "words"),
    [
        ("kernel_h <= 16", {"kernel_h": 17}, "kernel_h = 17 <= 16 does not hold"),
        ("kernel_h <= 16", {"kernel_h": 16}, ""),
        (
            "kernel_h * kernel_w * ceil(in_channels / 16) <= 2048",
            {"kernel_h": 7, "kernel_w": 7, "in_channels": 768},
            (
                "kernel_h * kernel_w * ceil(in_channels / 16) = 2352 <= 2048 does not hold "
                "(kernel_h = 7, kernel_w = 7, in_channels = 768)"
            ),
        ),
        ("1 <= stride_h <= 3", {"stride_h": 4}, "stride_h = 4 <= 3 does not hold"),
        (
            "max(pad_top, pad_left) < kernel_h",
            {"pad_top": 1, "pad_left": 3, "kernel_h": 3},
            "max(pad_top, pad_left) = 3 < kernel_h = 3 does not hold (pad_top = 1, pad_left = 3)",
        ),
        ("batch / groups >= 1", {"batch": 1, "groups": 0}, "batch / groups >= 1 divides by zero"),
    ],
)
def test_inequalities(text: str, numbers: dict[str, int], words: str) -> None:
    assert not limits.faults(text)
    assert limits.broken(text, numbers) == words


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "kernel_h.real <= 1", "(lambda: 1)() <= 1", "kernel_h <= 1.5", "kernel_h in (1, 2)"],
)
def test_rules_are_no_programs(text: str) -> None:
    assert limits.faults(text)


def refusals(target: Target, make) -> list[str]:  # type: ignore[no-untyped-def]
    b = Builder()
    y = make(b)
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    return [p.reason for p in place(graph, target).places]


def test_refusals_carry_the_numbers_of_the_published_formula() -> None:
    """DPUCZDX8G-B4096: kernel_w * kernel_h * ceil(input_channel / 16) <= 2048."""
    dpu = suite.load(FOLDER / "dpuczdx8g-b4096.toml")

    def conv(channels: int, kernel: int = 7):  # type: ignore[no-untyped-def]
        return lambda b: b.conv(b.input("x", (1, channels, 8, 8)), 16, kernel)

    assert refusals(dpu, conv(656)) == [""]                         # 49 * 41 = 2009
    (reason,) = refusals(dpu, conv(672))                            # 49 * 42 = 2058
    assert "= 2058 <= 2048 does not hold" in reason and "in_channels = 672" in reason and "bank" in reason
    (reason,) = refusals(dpu, conv(16, 17))
    assert "max(kernel_h, kernel_w) = 17 <= 16" in reason
    versal = suite.load(FOLDER / "dpucvdx8g.toml")
    assert refusals(versal, conv(672)) == [""]
    (reason,) = refusals(versal, conv(16, 9))
    assert "kernel_h * kernel_w = 81 <= 64" in reason
    assert refusals(versal, lambda b: b.conv(b.input("x", (1, 16, 8, 8)), 16, 9, depthwise=True)) == [""]


def test_inspect_states_them(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    w = numpy_helper.from_array(np.zeros((16, 672, 7, 7), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="wide", pads=[3] * 4)
    shapes = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 672, 8, 8]), ("y", [1, 16, 8, 8]))
    ]
    graph = helper.make_graph([node], "g", shapes[:1], shapes[1:], [w])
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    result = CliRunner().invoke(application("inspect"), ["inspect", str(path), "--target", "dpuczdx8g-b4096"])
    assert result.exit_code == 0, result.output
    assert "= 2058 <= 2048 does not hold" in result.output


def test_a_fingerprint_is_checked_before_a_program_runs() -> None:
    graph, _ = mixed(SMALL.numerics)
    program = build(graph, SMALL)
    assert program.target_fingerprint == fingerprint(SMALL)
    other = {**program.meta, "target": target_meta(replace(SMALL, dma=replace(SMALL.dma, setup_cycles=9)))}
    with pytest.raises(ModelError, match="not the one of its fingerprint"):
        Program.from_bytes(
            Program(program.target_fingerprint, other, program.commands, program.const).to_bytes()
        )


def test_a_program_runs_on_its_own_target_only(tmp_path: Path) -> None:
    target = suite.load(FOLDER / "edge-4t.toml")
    graph, inputs = mixed(target.numerics)
    build(graph, target).save(tmp_path / "p.npu")
    np.savez(tmp_path / "in.npz", **inputs)
    words = [
        "run",
        str(tmp_path / "p.npu"),
        str(tmp_path / "in.npz"),
        "-o",
        str(tmp_path / "out.npz"),
        "--target",
    ]
    assert CliRunner().invoke(application("run"), [*words, "edge-4t"]).exit_code == 0
    refused = CliRunner().invoke(application("run"), [*words, "zhouyi-z2"])
    assert isinstance(refused.exception, ModelError)
    assert "not compiled for zhouyi-z2" in str(refused.exception)
    assert "compute.array_cols is 64, zhouyi-z2 has 16" in str(refused.exception)


def test_the_verb_lists_and_checks() -> None:
    runner = CliRunner()
    listed = runner.invoke(application("targets"), ["targets", "--json"])
    assert {json.loads(line)["name"] for line in listed.output.splitlines()} == {p.stem for p in TARGETS}
    shown = runner.invoke(application("targets"), ["targets", "dpuczdx8g-b4096"]).output
    assert "TOPS" in shown and "ceil(in_channels / 16) <= 2048" in shown and "PG338" in shown


def test_the_verb_tells_unknown_operators_with_all_else(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        '[compute]\ncores = 0\n[limits]\nrefuse = ["convolution"]\n'
        '[[limits.rules]]\noperators = ["convv"]\nneed = "kernel_q <= 3"\n'
    )
    result = CliRunner().invoke(application("targets"), ["targets", str(tmp_path / "bad.toml")])
    assert isinstance(result.exception, RecipeError)
    reported = "\n".join(f"{f.where.key}: {f.message}" for f in result.exception.faults())
    for words in ("compute.cores: 0 is out of range", 'limits.refuse: there is no operator "convolution"',
                  'limits.rules[0].operators: there is no operator "convv"',
                  'limits.rules[0].need: the rule cannot be read: there is no "kernel_q"'):
        assert words in reported, reported


def test_a_wrong_target_hides_no_other_fault(tmp_path: Path) -> None:
    """An unknown name, or a file of one's own with faults: reported with all the recipe's others,
    each with its file and line."""
    own = (
        (FOLDER / "edge-4t.toml").read_text().replace("cores = 1", "cores = 99").replace('"half_up"', '"up"')
    )
    (tmp_path / "mine.toml").write_text(own)
    recipe = tmp_path / "r.toml"
    for name, wanted in (
        ("edge-44t", ["no target", "edge-4t"]),
        ("mine.toml", ["99 is out of range", '"up" is not allowed']),
    ):
        recipe.write_text(
            f'target = "{name}"\n[model]\npath = "none.onnx"\n[calibrate]\nmethdo = "kl"\n[tiling]\nlevel = '
            '9\n'
        )
        result = CliRunner().invoke(
            application("build"), ["build", str(recipe), "--cache", str(tmp_path / "cache")]
        )
        assert result.exit_code == 2
        for words in (*wanted, "none.onnx", "methdo", "9 is out of range"):
            assert words in result.output, f"{name}: {words} not in\n{result.output}"
        assert (str(tmp_path / "mine.toml:7") in result.output) == (name == "mine.toml")


def test_a_file_of_ones_own_is_a_target(tmp_path: Path) -> None:
    """Beside the recipe, by its path: its name is nowhere known, and its numbers are in the program."""
    text = (
        (FOLDER / "edge-4t.toml")
        .read_text()
        .replace("clock_mhz = 1000", "clock_mhz = 123")
        .replace('"edge-4t"', '"mine"')
    )
    (tmp_path / "mine.toml").write_text(text)
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'target = "mine.toml"\n[model]\npath = '
        f'"{FOLDER.parents[1] / "examples" / "fashion" / "fashion.onnx"}"\n'
    )
    words = ["plan", str(recipe), "--cache", str(tmp_path / "cache"), "--until", "placement"]
    done = CliRunner().invoke(application("plan"), words)
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(application("targets"), ["targets", str(tmp_path / "mine.toml")])
    assert shown.exit_code == 0 and "0.50 TOPS" in shown.output


def test_rules_need_no_python() -> None:
    assert LimitRule(("conv",), "kernel_h <= 3").need == "kernel_h <= 3"
    assert list(LimitRule(("conv",), "kernel_h <= 3", when="groups == 1").check()) == []
    assert list(LimitRule(("conv",), "kernel_h <= 3", when="groups").check())


def test_own_files_extend_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "edge-4t"\nname = "mine"\n[memory]\nlocal_banks = 7\n')
    mine, base = suite.load(tmp_path / "mine.toml"), suite.load(FOLDER / "edge-4t.toml")
    assert mine == replace(base, name="mine", memory=replace(base.memory, local_banks=7))
    (tmp_path / "wrong.toml").write_text('extends = "edge-4"\n')
    done = CliRunner().invoke(application("targets"), ["targets", str(tmp_path / "wrong.toml")])
    assert isinstance(done.exception, RecipeError) and '"edge-4t"' in done.exception.hint
