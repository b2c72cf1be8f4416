"""EPContext models of language models: the cache is inputs and outputs, the position too, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuflow.ort as ort
from npuflow import Runner
from npuflow.base.errors import DataError, UsageError
from npuflow.cli import main
from npuflow.program.container import Program
from npuflow.program.graph_section import encode_graph
from npuflow.program.packing.package import packed
from npuflow.runner.context_model import context_model
from tests.program.test_indices import CONTEXT, decoder
from tests.tiers import often

TOKENS = np.random.default_rng(3).integers(3, 80, CONTEXT).tolist()
CASES = [("llama", "edge-8t"), ("gpt2", "bm1684x"), ("qwen3", "edge-8t"), ("gemma2", "bm1684x")]
Arrays = dict[str, np.ndarray]


def program(family: str, target: str, chunk: int) -> Program:
    """With its graph, as programs have it by default."""
    own = decoder(target, chunk, family, calibrated=4)
    return replace(own.program, graph_bytes=encode_graph(own.graph))


def parts(model: bytes) -> list[onnx.NodeProto]:
    nodes = onnx.load_model_from_string(model).graph.node
    return [node for node in nodes if node.op_type == "EPContext"]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "target"), often(CASES, 4))
def test_a_sequence_of_a_model_is_the_program_s(family: str, target: str) -> None:
    """The prompt in chunks by one model, answers by another: what one leaves goes into the other."""
    both = {chunk: program(family, target, chunk) for chunk in (4, 1)}
    models = {chunk: context_model(one).model for chunk, one in both.items()}
    for exact in ("executor", "simulator"):
        session = Runner(packed({f"chunk={c}": one for c, one in both.items()}), exact=exact).session()
        runners = {c: ort.InferenceSession(model, providers=[("NpuflowExecutionProvider", {"exact": exact})])
                   for c, model in models.items()}
        held, at = start(models[4], runners[4]), 0
        for chunk in (4, 4, 1, 1, 1, 4, 1, 4, 4, 4, 4):
            tokens = TOKENS[at : at + chunk]
            outputs = [port.name for port in runners[chunk].get_outputs()]
            feed = {**held, "tokens": np.array([tokens])}
            made = dict(zip(outputs, runners[chunk].run(None, feed), strict=True))
            at += chunk
            np.testing.assert_array_equal(made["logits"][0], session.append(tokens), err_msg=f"{exact} {at}")
            held = {name: made[f"{name}:next"] for name in held}
            for name, array in session.state.items():
                np.testing.assert_array_equal(held[name], array, err_msg=f"{name} {exact} {at}")
        assert at == CONTEXT


def start(model: bytes, session: ort.InferenceSession) -> Arrays:
    """What the state begins with, as the model's metadata have it: a code of 0 for each input."""
    rows = Runner(model).session().state
    assert set(rows) == {port.name for port in session.get_inputs()} - {"tokens"}
    return rows


def test_sessions_of_tokens_go_over_a_model_too() -> None:
    own = program("llama", "edge-8t", 4)
    session, wanted = Runner(context_model(own).model).session(), Runner(own).session()
    for at in range(0, CONTEXT, 4):
        np.testing.assert_array_equal(session.append(TOKENS[at : at + 4]), wanted.append(TOKENS[at : at + 4]))
    with pytest.raises(DataError) as fault:
        session.append([5])
    assert fault.value.code == "NF-RUN-090"


@pytest.mark.parametrize("exact", ["executor", "simulator"])
@pytest.mark.parametrize("position", [-1, CONTEXT - 3])
def test_a_position_outside_of_the_cache_is_one_error(position: int, exact: str) -> None:
    own = program("llama", "edge-8t", 4)
    runner = Runner(context_model(own).model, exact=exact)  # type: ignore[arg-type]
    feed = {**runner.session().state, "tokens": np.array([TOKENS[:4]])}
    with pytest.raises(DataError, match=f'"position" is {position}; the program runs at 0 to 28') as fault:
        runner.run({**feed, "position": np.array([position], np.int32)})
    assert fault.value.code == "NF-DATA-273"


def test_the_node_reads_the_index_beside_what_the_host_makes_of_it() -> None:
    (node,) = parts(context_model(program("llama", "edge-8t", 4)).model)
    assert node.input[-1] == "position" and "layers.0.heads:numbers" in node.input
    assert "cache.0.key:next" in node.output


@pytest.mark.slow
def test_the_verb_writes_the_network_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.npu"
    packed({f"chunk={c}": program("llama", "edge-8t", c) for c in (1, 4)}).save(file)
    for chunk in (1, 4):
        output = tmp_path / f"net{chunk}.onnx"
        assert main(["export", "epcontext", f"{file}#chunk={chunk}", "-o", str(output), "--external"]) == 0
        assert "1 EPContext node, " in capsys.readouterr().out
        session = Runner(output).session()
        np.testing.assert_array_equal(
            session.append(TOKENS[:8]), Runner(f"{file}#chunk={chunk}").session().append(TOKENS[:8])
        )


def test_an_index_of_several_parts_on_the_npu_is_refused() -> None:
    """Their waits could not be counted anew. Here: a part of the host between two halves of the commands."""
    own = program("llama", "edge-8t", 4)
    steps = own.meta["steps"]
    (at,) = [k for k, step in enumerate(steps) if step["kind"] == "npu"]
    (count,) = steps[at]["count"]
    first = {**steps[at], "count": [count - 1]}
    second = {**steps[at], "segment": 1, "first": [count - 1], "count": [1]}
    between = {"kind": "host", "model": 1, "inputs": ["tokens"], "outputs": ["more"]}
    changed = [*steps[:at], first, between, second, *steps[at + 1 :]]
    cut = replace(own, meta={**own.meta, "steps": changed}, hosts=(*own.hosts, own.hosts[0]))
    with pytest.raises(UsageError, match="2 parts of it run on the NPU") as fault:
        context_model(cut)
    assert fault.value.code == "NF-USAGE-384"
