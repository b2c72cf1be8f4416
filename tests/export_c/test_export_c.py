"""Generated C against the reference interpreter, bit for bit: operators, random networks, compilers."""

from __future__ import annotations

import random
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.base.errors import ModelError, TargetError
from npuflow.hw.isa import opcodes
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.onnx.export import export_model
from npuflow.place.islands import PlacementTable
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Override, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session
from npuflow.run.state import with_state
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c import files, kernel
from npuflow.whole.export_c.compiler import compilers, measured
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples, sample
from tests.export_c.harness import COMPILERS, UB, Case, case, check, needs_compiler
from tests.networks.onnx_text import TARGET, model, normal
from tests.networks.random_networks import network
from tests.networks.small import Builder
from tests.networks.subjects import subject
from tests.tiers import often

ROUNDINGS = ("half_up", "half_even", "half_away", "truncate")
# of tiles between memories, and of commands again: there are none
MOVES = {"LOAD", "LOADROWS", "STORE", "BARRIER", "REPEAT", "ADVANCE"}
REFUSED = {"SCALEDCONV", "SCALEDMATMUL", "GROUPMATMUL"}
FLOAT_ROLES = {"float", "float_sum", "any"}  # of operands: a network that needs such a command is refused
FLOAT = {"quantizelinear", "dequantizelinear", "host"}


def test_every_opcode_that_computes_has_a_kernel() -> None:
    integer = {name for name, one in opcodes().items() if not FLOAT_ROLES & {f.role for f in one.fields}}
    assert {n.upper() for n in kernel.KERNELS.names()} == integer - MOVES - REFUSED


@needs_compiler
@pytest.mark.parametrize("bits", often([16, 8], 2))
def test_every_operator_is_exact(bits: int, tmp_path: Path) -> None:
    numerics = Numerics(wide_acc_bits=48, rounding="half_even" if bits == 16 else "half_up")
    cases = []
    for name in set(OPS.names()) - FLOAT:
        for one in samples(name)[:1]:
            try:
                graph, _ = quantised(one, numerics, Quantize(activations=Activations(bits=bits)))
            except TargetError:
                continue  # 16 bits interpolate no step
            cases.append(case(graph, numerics, len(cases), 1))
    assert len(cases) > 40
    check(cases, tmp_path, ("-O0", *UB))


@needs_compiler
def test_quotients_of_both_kinds_are_exact_in_one_program(tmp_path: Path) -> None:
    """Of whole numbers towards zero, of others to the nearest."""
    body = """p = ArgMax<axis=1, keepdims=0>(s) q = Div(p, three) e = Gather(table, q)
        a = Abs(s) b = Add(a, one) c = Div(s, b) y = Add(c, e)"""
    weights = {"three": np.array(3, np.int64), "one": np.array(1, np.float32), "table": normal(1, 4, 12)}
    graph = rewrite(graph_of(model("float[6,12] s => float[6,12] y", body, weights))).graph
    given = {"s": normal(5, 6, 12)}
    wanted = [o for n in graph.nodes for o in n.outputs]
    found = zip(wanted, host_session(export_model(graph, wanted)).run(wanted, given), strict=True)
    ranges = {name: (float(a.min()), float(a.max())) for name, a in (*given.items(), *found)}
    made = quantize_graph(graph, lambda _: True, ranges, Quantize(), Numerics()).graph
    assert {"Div", "Quotient"} <= {type(n.op).__name__ for n in made.nodes}
    check([case(made, Numerics(), 0, 2)], tmp_path, ("-O0", *UB))


def _random(seeds: range) -> list[Case]:
    found = []
    for seed in seeds:
        rng = random.Random(seed)
        numerics = Numerics(rounding=rng.choice(ROUNDINGS))
        graph, _ = network(rng, numerics, weight_bits=rng.choice((4, 6, 8, 8)))
        found.append(case(graph, numerics, seed, 2, rng.choice((0, 1 << 30))))
    return found


@needs_compiler
@pytest.mark.parametrize("flags", [("-O0", *UB), pytest.param(("-O2", "-mavx2"), marks=pytest.mark.slow)])
def test_random_convolutional_networks(flags: tuple[str, ...], tmp_path: Path) -> None:
    if "-mavx2" in flags and "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("the processor has no AVX2")
    for compiler in {"gcc", "clang"} & set(COMPILERS) or {COMPILERS[0]}:
        check(_random(range(5)), tmp_path / compiler, flags, compiler)


def test_vectors_of_many_samples_are_the_interpreters() -> None:
    """Beyond the first two the whole-tensor executor makes them."""
    numerics = Numerics()
    graph, _ = network(random.Random(3), numerics, weight_bits=8)
    found = network_of(graph)
    drawn = random_samples(found, numerics, 5, seed=3)
    assert len({array.tobytes() for given, _ in drawn for array in given.values()}) == 5 * len(found.inputs)
    for given, want in drawn:
        _, made = sample(found, numerics, given)
        assert all(np.array_equal(made[name], array) for name, array in want.items())


@needs_compiler
@pytest.mark.parametrize(("seeds", "least"), often([(range(10), 4), (range(10, 40), 11)], 2))
def test_random_graphs_of_all_operators(seeds: range, least: int, tmp_path: Path) -> None:
    from tests.networks.random_graphs import subject

    cases = []
    for seed in seeds:
        s = subject(seed)
        try:
            placement = place(s.graph, s.target)
            done = quantize_graph(s.graph, placement.on_npu, s.ranges, s.config, s.target.numerics)
            cases.append(case(done.graph, s.target.numerics, seed))
        except (TargetError, ModelError):
            continue
    assert len(cases) > least
    check(cases, tmp_path, ("-O0", *UB))


@needs_compiler
def test_a_clamp_behind_a_rounding_is_compiled_right(tmp_path: Path) -> None:
    """GCC 12 took a sum for one of 8 bits once both factors were known."""
    b = Builder()
    graph, ranges = _graph(
        b, b.add(OPS["mul"](clip=(-0.5, 0.75)), b.input("x", (1, 1, 8, 8)), b.const((), 1.0))
    )
    numerics = Numerics(rounding="half_away")
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), numerics)
    check([case(done.graph, numerics, 0, 8)], tmp_path, ("-O2",))


def _graph(b: Builder, output: str) -> tuple[Graph, dict[str, tuple[float, float]]]:
    values, consts = MappingProxyType(b.values), MappingProxyType(b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return Graph(("x",), (output,), tuple(b.nodes), values, consts), ranges


def test_layers_of_the_host_are_listed() -> None:
    b = Builder()
    graph, ranges = _graph(b, b.add(OPS["sigmoid"](), b.add(OPS["relu"](), b.input("x", (1, 2, 6, 6)))))
    float_node = graph.nodes[1]
    done = quantize_graph(graph, lambda n: n != 1, ranges, Quantize(), Numerics())
    with pytest.raises(ModelError, match="run on the host or in float: ") as caught:
        network_of(done.graph)
    assert caught.value.code == "NF-PROGRAM-031"
    assert f"{float_node.name} (sigmoid)" in caught.value.message


@needs_compiler
def test_indices_are_their_own_codes(tmp_path: Path) -> None:
    """An input of whole numbers, its Cast and the rows of a table: samples name rows that there are."""
    table = np.random.default_rng(3).normal(size=(11, 6)).astype(np.float32)
    data = model("int64[1,5] ids => float[1,5,6] y", "t = Gather(w, ids) y = Tanh(t)", {"w": table})
    one = subject("words", rewrite(graph_of(data)).graph)
    done = quantize_graph(one.graph, place(one.graph, TARGET).on_npu, one.ranges, Quantize(), Numerics())
    found = case(done.graph, Numerics(), 0, 20)
    (given,) = {name for name, _ in found.network.inputs}
    drawn = np.concatenate([s[0][given].ravel() for s in found.samples])
    assert given == "ids" and drawn.dtype == np.int16 and {drawn.min(), drawn.max()} == {-11, 10}
    check([found], tmp_path)


def test_the_header_says_what_is_state(tmp_path: Path) -> None:
    """The caller keeps it, and has to know which output is which input, and what begins."""
    graph = graph_of(model("float[1,4] x, float[1,4] held => float[1,4] kept", "kept = Add(x, held)"))
    one = subject("sums", with_state(graph, {"kept": "held"}))
    done = quantize_graph(one.graph, place(one.graph, TARGET).on_npu, one.ranges, Quantize(), Numerics())
    found = case(done.graph, Numerics(), 0)
    files.write(found.program, tmp_path, found.samples)
    header = (tmp_path / "net0.h").read_text()
    said = "State: what out_kept gets is in_held of the next call; at first all of it is NET0_IN_HELD_ZERO."
    assert said in header and "#define NET0_IN_HELD_ZERO" in header
    without = case(network(random.Random(3), Numerics())[0], Numerics(), 1)
    files.write(without.program, tmp_path, without.samples)
    assert "State" not in (tmp_path / "net1.h").read_text()


def test_outputs_that_the_host_joins_are_outputs() -> None:
    """Boxes and scores, each with its own scale; a layer of the host that computes is refused."""
    body = "s = Sigmoid(x) b = Relu(x) j = Concat<axis=1>(b, s) y = Transpose<perm=[0,2,1]>(j)"
    data = model("float[1,4,6] x => float[1,6,8] y", body)
    one = subject("head", rewrite(graph_of(data)).graph)
    on_npu = place(one.graph, TARGET, PlacementTable(min_macs=0)).on_npu
    made = quantize_graph(one.graph, on_npu, one.ranges, Quantize(), Numerics()).graph
    outputs = dict(network_of(made).outputs)
    assert set(outputs) == {"b", "s"} and outputs["s"].quant != outputs["b"].quant
    relu = next(i for i, n in enumerate(one.graph.nodes) if n.outputs == ("b",))
    mixed = quantize_graph(one.graph, lambda i: on_npu(i) and i != relu, one.ranges, Quantize(), Numerics())
    with pytest.raises(ModelError, match=r"b \(relu\)"):
        network_of(mixed.graph)


def test_layers_in_floats_are_listed() -> None:
    """All of a network in bfloat16; one layer of it, with the casts beside it, and no other."""
    b = Builder()
    x = b.conv(b.conv(b.input("x", (1, 2, 6, 6)), 3, 3), 3, 3)
    graph, ranges = _graph(b, b.conv(x, 2, 1))
    numerics, names = Numerics(float_types=("bfloat16",)), [n.name for n in graph.nodes]
    one = Quantize(overrides=(Override((names[1],), type="bf16"),))
    for config, listed in ((Quantize(mode="bf16"), names), (one, names[1:2])):
        done = quantize_graph(graph, lambda _: True, ranges, config, numerics)
        with pytest.raises(ModelError, match="run on the host or in float: ") as caught:
            network_of(done.graph)
        assert caught.value.code == "NF-PROGRAM-031"
        assert [n for n in names if f"{n} (conv)" in caught.value.message] == listed


@needs_compiler
def test_products_that_need_two_limbs(tmp_path: Path) -> None:
    """Sums of more than 31 bits times multipliers of 32."""
    b = Builder()
    x = b.input("x", (1, 300, 3, 3))
    conv = OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1)
    float_graph, ranges = _graph(b, b.add(conv, x, b.const((5, 300, 3, 3), 1.0), b.const((5,), 1.0)))
    for n, rounding in enumerate(ROUNDINGS):
        numerics = Numerics(wide_acc_bits=48, multiplier_bits=32, rounding=rounding)
        config = Quantize(activations=Activations(bits=16))
        graph = quantize_graph(float_graph, lambda _: True, ranges, config, numerics).graph
        one = case(graph, numerics, n, 3)
        assert any("NN_SCALE_w" in text for text in one.program.functions)
        check([one], tmp_path / rounding, ("-O0", *UB))


@needs_compiler
@pytest.mark.parametrize(
    "flags", [("-O0", *UB), pytest.param(("-O3", "-mavx2"), marks=pytest.mark.slow)], ids=" ".join
)
def test_convolutions_of_16_bits_run_in_blocks(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Codes from 0 to 65,535 whose zero point is not in the middle, with and without padding, by channel."""
    if "-mavx2" in flags and "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("the processor has no AVX2")
    numerics, config = Numerics(wide_acc_bits=48), Quantize(activations=Activations(bits=16))
    found = []
    shapes = ((5, 1, 3, 1), (18, 18, 3, 2), (8, 2, 3, 0), (7, 1, 1, 0))
    for n, (channels, groups, size, pad) in enumerate(shapes):
        b = Builder()
        x = b.input("x", (1, channels, 7, 7))
        conv = OPS["conv"]((size, size), (1, 1), (1, 1), (pad,) * 4, groups)
        out = 18 if groups in (1, 2) else channels
        graph, ranges = _graph(b, b.add(conv, x, b.const((out, channels // groups, size, size), 0.3)))
        ranges["x"] = (-0.5 * n, 3.0)
        made = quantize_graph(graph, lambda _: True, ranges, config, numerics).graph
        found.append(case(made, numerics, n, 3))
        assert any("_uint16" in text and "int16 *s," in text for text in found[-1].program.functions)
        (quant,) = (p.value.quant for p in found[-1].program.inputs)
        assert quant is not None and (quant.dtype, quant.zero_point == (0,)) == ("uint16", not n)
    check(found, tmp_path, flags)


@needs_compiler
def test_the_arena_is_what_lives_at_once() -> None:
    graph, _ = network(random.Random(3), Numerics())
    program = case(graph, Numerics(), 0).program
    assert program.bound <= program.arena <= 1.3 * program.bound
    assert np.all([a.size for _, a in program.constants])


@needs_compiler
def test_size_and_stack_are_measured_in_a_folder_of_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_c").mkdir()
    (tmp_path / "net_c" / "net.c").write_text("int net_run(int x) { return x + 1; }\n")
    monkeypatch.chdir(tmp_path)
    found = measured(Path("net_c"), "net")
    assert found is not None and found.compiler.split()[0] in compilers()
