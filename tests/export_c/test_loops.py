"""Loops in generated C: `for` over their steps, bit for bit; the source does not grow with the steps."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops, loops
from npuflow.ir.text import from_text
from npuflow.ir.unroll import written_out
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.floats import FloatRun
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c import files
from npuflow.whole.export_c.sequence import CLoop
from tests.export_c.harness import COMPILERS, UB, Case, case, check, needs_compiler
from tests.export_c.random_loops import WIDE, cases, whole
from tests.networks import free_lengths
from tests.networks.looped import free_length
from tests.networks.onnx_text import model, normal, rewritten
from tests.rules.test_recurrent import layer
from tests.tiers import often

SANITIZED = ("-std=c99", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover")


def integers(graph: Graph, bits: int = 8) -> Graph:
    """Quantised with the ranges of one random sample."""
    feeds = {
        i: normal(7, *graph.type(i).shape) if graph.type(i).dtype == "float32"
        else np.full(graph.type(i).shape, 3, graph.type(i).dtype)
        for i in graph.inputs
    }
    made = [o for n in graph.nodes for o in n.outputs if o]
    found = {**feeds, **FloatRun.of(graph, made).run(feeds)}
    held = {v: a for v in graph.values if (a := graph.const(v)) is not None}
    real = {name: a for name, a in {**held, **found}.items() if a.dtype == np.float32}
    return whole(graph, {name: (float(a.min()), float(a.max())) for name, a in real.items()}, bits)


def looped(case_: Case) -> list[CLoop]:
    return [one for one in case_.program.calls if isinstance(one, CLoop)]


@needs_compiler
@pytest.mark.parametrize(("seeds", "least"), often([(range(10), 7), (range(10, 40), 23)], 2))
def test_random_loops(seeds: range, least: int, tmp_path: Path) -> None:
    found = list(cases(seeds))
    assert len(found) > least and all(looped(one) for one in found)
    check(found, tmp_path, ("-O0", *UB))
    for compiler in {"gcc", "clang"} & set(COMPILERS) or {COMPILERS[0]}:
        check(found[:6], tmp_path / compiler, ("-O3",), compiler)


LAYERS = {
    "LSTM": layer("LSTM", steps=5, states="input"),
    "LSTM of 4 steps": layer("LSTM", steps=4),
    "LSTM, both directions": layer("LSTM", 'direction="bidirectional"', 2, steps=50),
    "LSTM with peepholes": layer("LSTM", steps=5, peepholes=True, states="constant"),
    "GRU": layer("GRU", steps=50, states="input"),
    "GRU, both directions": layer("GRU", 'direction="bidirectional"', 2, steps=5),
    "RNN, backwards": layer("RNN", 'direction="reverse"', steps=4, batch=1),
    "RNN": layer("RNN", steps=50, batch=1),
}


@pytest.fixture(scope="module")
def layers() -> list[Case]:
    """Each of LAYERS at 8 and at 16 bits."""
    found = []
    for data in LAYERS.values():
        graph = rewritten(data).graph
        for bits in (8, 16):
            found.append(case(integers(graph, bits), WIDE.numerics, len(found), 3))
            assert len(looped(found[-1])) == len(loops(graph)) > 0
    return found


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("flags", [("-O0", *UB), ("-O3",), ("-O3", "-mavx2")], ids=" ".join)
def test_recurrent_layers(flags: tuple[str, ...], layers: list[Case], tmp_path: Path) -> None:
    if "-mavx2" in flags and "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("the processor has no AVX2")
    check(layers if "-O0" in flags else layers[::3], tmp_path, flags)


@needs_compiler
@pytest.mark.parametrize("op", often(["LSTM", "GRU", "RNN"], 3))
def test_lengths_that_are_an_input_are_a_mask(op: str, tmp_path: Path) -> None:
    """Random codes of the lengths are mostly too long; those of the second network are short."""
    graph = integers(rewrite(graph_of(layer(op, steps=5, lengths="input", states="input"))).graph)
    one = case(graph, WIDE.numerics, 0, 8)
    assert looped(one)
    check([one], tmp_path)


@needs_compiler
@pytest.mark.parametrize("make", often([free_lengths.strided_gru, free_lengths.strided_lstm], 2))
def test_layers_behind_strides_end_at_a_length(make: Callable[[int], bytes], tmp_path: Path) -> None:
    graph, *_ = free_length(make, 24, WIDE, zeros=make is free_lengths.strided_lstm)
    one = case(graph, WIDE.numerics, 0, 8)
    assert len(looped(one)) == len(loops(graph)) > 0
    check([one], tmp_path)


TWO = """
    first, h, c = LSTM<hidden_size=6, direction="bidirectional">(x, wa, ra)
    p = Transpose<perm=[0, 2, 1, 3]>(first) q = Reshape(p, shape)
    second, k = GRU<hidden_size=5, direction="reverse">(q, wb, rb)
    t = Tanh(x) third, l = RNN<hidden_size=3>(t, wc, rc)
"""


def several(steps: int) -> Graph:
    """Three recurrent layers, the second behind the first; outputs are rows and last values."""
    weights = {
        "wa": normal(1, 2, 24, 4, scale=0.5), "ra": normal(2, 2, 24, 6, scale=0.5),
        "wb": normal(3, 1, 15, 12, scale=0.5), "rb": normal(4, 1, 15, 5, scale=0.5),
        "wc": normal(5, 1, 3, 4, scale=0.5), "rc": normal(6, 1, 3, 3, scale=0.5),
        "shape": np.array([steps, 2, 12], np.int64),
    }
    ends = f"float[2,2,6] c, float[{steps},1,2,5] second, float[1,2,5] k, float[{steps},1,2,3] third"
    return rewritten(model(f"float[{steps},2,4] x => {ends}", TWO, weights)).graph


@needs_compiler
@pytest.mark.parametrize("steps", often([4, 5, 50], 3))
def test_several_loops_in_one_network(steps: int, tmp_path: Path) -> None:
    graph = integers(several(steps))
    assert len(loops(graph)) == 4
    straight = written_out(graph)
    found = [case(graph, WIDE.numerics, 0, 3), case(straight, WIDE.numerics, 1, 3)]
    assert len(looped(found[0])) == 4 and not looped(found[1])
    check(found, tmp_path, ("-O1", *UB))


def test_the_source_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    """But for its numbers it is the same text, and its constants have the same bytes."""
    texts = []
    for steps in (21, 210):
        graph = several(steps)
        made = whole(graph, dict.fromkeys(graph.values, (-1.0, 1.0)))
        one = case(made, WIDE.numerics, 0, 1)
        files.write(one.program, tmp_path, one.samples)
        texts.append((tmp_path / "net0.c").read_text())
        assert [c.steps for c in looped(one)] == [steps] * 4
    assert texts[0] != texts[1]
    assert re.sub(r"\d+", "0", texts[0]) == re.sub(r"\d+", "0", texts[1])
    constants = [re.findall(r"static const nn_.*?;", text, re.DOTALL) for text in texts]
    assert constants[0] == constants[1] and len(constants[0]) > 10


HEAD = """npuflow graph 1
input x: float32[8,3]
input start: float32[2,3]
input other: float32[2,3]
"""
# loops that random ones rarely are: what is carried on is another carried value, or what was cut or captured
SPECIAL = {
    "values that change places": """
part: float32[2,3] = loopslice(x) loop="l" steps=4
a: float32[2,3] = loopcarry(start) loop="l" steps=4
b: float32[2,3] = loopcarry(other) loop="l" steps=4 index=1
c: float32[2,3] = loopcarry(start) loop="l" steps=4 index=2
sum: float32[2,3] = add(part, c)
last_a: float32[2,3] = looplast(b) loop="l" steps=4
last_b: float32[2,3] = looplast(a) loop="l" steps=4 index=1
last_c: float32[2,3] = looplast(sum) loop="l" steps=4 index=2
rows: float32[8,3] = loopstack(a) loop="l" steps=4 reverse=true
output last_a
output last_b
output last_c
output rows
""",
    "a queue": """
part: float32[2,3] = loopslice(x) loop="l" steps=4 reverse=true
by: float32[2,3] = loopcapture(other) loop="l" steps=4
a: float32[2,3] = loopcarry(start) loop="l" steps=4
b: float32[2,3] = loopcarry(start) loop="l" steps=4 index=1
c: float32[2,3] = loopcarry(other) loop="l" steps=4 index=2
made: float32[2,3] = mul(c, by)
last_a: float32[2,3] = looplast(part) loop="l" steps=4
last_b: float32[2,3] = looplast(a) loop="l" steps=4 index=1
last_c: float32[2,3] = looplast(b) loop="l" steps=4 index=2
rows: float32[8,3] = loopstack(made) loop="l" steps=4
back: float32[8,3] = loopstack(made) loop="l" steps=4 reverse=true
same: float32[8,3] = loopstack(by) loop="l" steps=4
output last_c
output rows
output back
output same
""",
    "one that stays, and one that is captured": """
part: float32[2,3] = loopslice(x) loop="l" steps=4
by: float32[2,3] = loopcapture(other) loop="l" steps=4
a: float32[2,3] = loopcarry(start) loop="l" steps=4
b: float32[2,3] = loopcarry(start) loop="l" steps=4 index=1
made: float32[2,3] = add(part, b)
last_a: float32[2,3] = looplast(a) loop="l" steps=4
last_b: float32[2,3] = looplast(by) loop="l" steps=4 index=1
rows: float32[8,3] = loopstack(made) loop="l" steps=4
then: float32[2,3] = sigmoid(last_a)
behind: float32[2,3] = add(last_a, last_b)
output then
output behind
output last_b
output rows
""",
    "a loop behind a loop": """
a: float32[2,3] = loopcarry(start) loop="l" steps=5
part: float32[2,3] = add(a, a)
last_a: float32[2,3] = looplast(part) loop="l" steps=5
cut: float32[1,3] = loopslice(last_a) loop="m" steps=2
by: float32[2,3] = loopcapture(other) loop="m" steps=2
b: float32[2,3] = loopcarry(last_a) loop="m" steps=2
made: float32[2,3] = mul(b, by)
more: float32[2,3] = add(made, cut)
last_b: float32[2,3] = looplast(more) loop="m" steps=2
left: float32[8,3] = sigmoid(x)
end: float32[2,3] = add(last_a, last_b)
output end
output left
""",
}


@pytest.mark.slow
@needs_compiler
def test_special_loops(tmp_path: Path) -> None:
    graphs = [from_text(HEAD + text.lstrip("\n")) for text in SPECIAL.values()]
    made = [integers(graph, bits) for graph in graphs for bits in (8, 16)]
    found = [case(graph, WIDE.numerics, number, 3) for number, graph in enumerate(made)]
    assert all(has_loops(one.network.graph) for one in found)
    check(found, tmp_path, ("-O1", *UB))


@pytest.mark.slow
@needs_compiler
def test_loops_keep_to_their_memory(tmp_path: Path) -> None:
    """AddressSanitizer: inputs, outputs, arena and weights are blocks of their own."""
    chosen = [case(integers(several(5)), Numerics(), 100, 2), *list(cases(range(40, 46)))[:2]]
    for number, one in enumerate(chosen):
        folder = tmp_path / str(number)
        files.write(one.program, folder, one.samples, 0 if one.apart else 1 << 30)
        name = one.program.name
        words = [COMPILERS[0], *SANITIZED, f"{name}.c", f"{name}_test.c", "-o", "tested"]
        build = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if "sanitize" in build.stderr or "libasan" in build.stderr:
            pytest.skip("no sanitizers")
        assert build.returncode == 0, build.stderr
        run = subprocess.run(["./tested"], cwd=folder, capture_output=True, text=True, check=False)
        assert run.returncode == 0 and "0 codes differ" in run.stdout, run.stdout + run.stderr
