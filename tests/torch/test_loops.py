"""Loops in PyTorch: the same as written out, gradients through all steps, training of a recurrent network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuflow.gradients.network import RealNetwork, batched  # noqa: E402
from npuflow.gradients.operators import has_form  # noqa: E402
from npuflow.ir.loops import has_loops  # noqa: E402
from npuflow.ir.queries import kind  # noqa: E402
from npuflow.ir.unroll import written_out  # noqa: E402
from tests.networks.random_loops import Drawn, subject  # noqa: E402
from tests.networks.random_nested import graph_subject  # noqa: E402
from tests.torch.networks import agreement, compiled_codes, prepared, tables  # noqa: E402

INPUTS = 64


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.GRU(6, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.first(x.transpose(0, 1))[0].transpose(0, 1))


@pytest.mark.parametrize(("drawn", "most", "least"), [(subject, 80, 15), (graph_subject, 120, 5)])
def test_random_loops_as_the_same_written_out(drawn: Drawn, most: int, least: int) -> None:
    seen = 0
    for seed in range(most):
        one = drawn(seed)
        if one is None or not all(has_form(one.graph.site(node)) for node in one.graph.nodes):
            continue
        straight = written_out(one.graph)
        nodes = (*one.graph.nodes, *straight.nodes)
        known = all(has_form(straight.site(n)) for n in straight.nodes)
        if not known or any(kind(n) == "pad" for n in nodes):        # what is padded is 0 here
            continue
        seen += 1
        found, wanted = (
            RealNetwork(graph).run(batched([one.feed, one.feed], graph.inputs), {}, graph.outputs)
            for graph in (one.graph, straight)
        )
        for name in one.graph.outputs:
            pair = torch.broadcast_tensors(found[name], wanted[name])
            np.testing.assert_allclose(*pair, 1e-4, 1e-4, err_msg=f"seed {seed} {name}")
    assert seen > least


def test_training_a_recurrent_network(tmp_path: Path) -> None:
    torch.manual_seed(1)
    x, given = torch.randn(INPUTS, 7, 6), tables()
    network = prepared(Recurrent().eval(), x, given, tmp_path / "cache")
    assert has_loops(network.integer_graph())
    network.train()
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, 5e-3)
    for _ in range(3):
        optimizer.zero_grad()
        network(x[:32]).square().mean().backward()
        optimizer.step()
    recurrent = [name for name in network.names if name.endswith("_r")]
    assert recurrent == ["first:gates_r"]            # the state's product, of all gates at once
    for name in recurrent:
        assert float(network.constants[network._place[name]].value.grad.abs().max()) > 0
    network.eval()
    found = agreement(network.codes(x), compiled_codes(network, given, x, tmp_path))
    assert len(found) > 6
    for name, (off, equal) in found.items():
        assert off <= 1 and equal >= 0.99, f"{name}: {off} codes, {equal:.4f} equal"
