"""The quantised graph: boundaries, shared scales, exceptions, biases, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError, RecipeError, TargetError
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import located
from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS
from npuflow.onnx.export import export_model
from npuflow.place.names import stated, unknown_layers
from npuflow.quantise.config import Activations, Override, Quantize, Weights
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from tests.networks.by_hand import Net, chain, sqnr

WIDE = Numerics(acc_bits=48, weight_bits=(8, 16))


def test_integers_inside_floats_outside() -> None:
    net = chain()
    graph = net.quantised(["c2"]).graph
    assert [type(n.op).__name__ for n in graph.nodes] == [
        "QuantizeLinear",
        "Conv",
        "MaxPool",
        "Conv",
        "DequantizeLinear",
    ]
    assert graph.inputs == ("x",) and graph.outputs == ("c2",)
    assert [n.is_integer for n in graph.nodes] == [False, True, True, True, False]
    assert graph.values["c1"].quant == graph.values["p"].quant  # the pool shares its scale
    assert graph.const("c1.w:q").dtype == np.int8 and graph.const("c1.b:q").dtype == np.int32  # type: ignore[union-attr]
    assert "c1.w" not in graph.values                                     # the float weights are gone


def test_the_interpreter_is_near_the_float_model() -> None:
    net = chain()
    found = net.run(net.quantised(["c2"]))
    assert found["c2:q"].dtype == np.uint8 and found["c2"].dtype == np.float32
    assert 30 < sqnr(net.data["c2"], found["c2"]) < 60
    better = net.run(net.quantised(["c2"], Quantize(activations=Activations(bits=16)), WIDE), WIDE)
    assert sqnr(net.data["c2"], better["c2"]) > sqnr(net.data["c2"], found["c2"])
    # With 16-bit weights too, only float32's own precision and 16 bits of activation are left.
    best_config = Quantize(Weights(bits=16), Activations(bits=16))
    best = net.run(net.quantised(["c2"], best_config, WIDE), WIDE)
    assert sqnr(net.data["c2"], best["c2"]) > 80


def test_integer_ports() -> None:
    net = chain()
    done = net.quantised(["c2"], Quantize(inputs="integer", outputs="integer"))
    assert [type(n.op).__name__ for n in done.graph.nodes] == ["Conv", "MaxPool", "Conv"]
    assert done.graph.values["x"].quant is not None and done.graph.outputs == ("c2",)
    reference = net.run(net.quantised(["c2"]))
    again = net.run(done, x=reference["x:q"])
    np.testing.assert_array_equal(again["c2"], reference["c2:q"])


def test_a_host_node_in_between_gets_boundaries() -> None:
    net = chain()
    graph = net.quantised(["c2"], host=["p"]).graph
    kinds = [type(n.op).__name__ for n in graph.nodes]
    assert kinds == [
        "QuantizeLinear",
        "Conv",
        "DequantizeLinear",
        "MaxPool",
        "QuantizeLinear",
        "Conv",
        "DequantizeLinear",
    ]
    host = next(n for n in graph.nodes if type(n.op).__name__ == "MaxPool")
    assert host.inputs == ("c1:f",) and host.outputs == ("p",) and not host.is_integer
    found = net.run(net.quantised(["c2"], host=["p"]))
    assert sqnr(net.data["c2"], found["c2"]) > 30


def test_one_boundary_serves_all_consumers() -> None:
    net = Net(1, 3, 6, 6)
    net.conv("a", "x", 3)
    net.conv("b", "x", 3)
    net.add("s", OPS["add"](), "a", "b")
    net.add("m", OPS["mul"](), "s", "s")
    kinds = [type(n.op).__name__ for n in net.quantised(["m", "s"]).graph.nodes]
    assert kinds.count("QuantizeLinear") == 1 and kinds.count("DequantizeLinear") == 2


def test_shared_scales_cover_every_member() -> None:
    net = Net(1, 3, 6, 6)
    net.conv("a", "x", 3)
    net.conv("b", "x", 3, weight=10 * net.rng.normal(size=(3, 3, 3, 3)))
    net.add("m", OPS["max"](), "a", "b")
    graph = net.quantised(["m"]).graph
    types = {graph.values[v].quant for v in ("a", "b", "m:q")}
    assert len(types) == 1
    (quant,) = types
    assert quant is not None
    lo = min(float(net.data[v].min()) for v in "abm")
    hi = max(float(net.data[v].max()) for v in "abm")
    assert quant.scale[0] == pytest.approx((hi - lo) / 255, rel=1e-5)


@pytest.mark.parametrize("layers", [("c1",), ("/c1",), ("*1",), ("conv",)])
def test_exceptions_by_name_operator_and_pattern(layers: tuple[str, ...]) -> None:
    net = chain()
    rule = Override(layers, weight_bits=4, weight_per="tensor", bits=6)
    graph = net.quantised(["c2"], Quantize(overrides=(rule,))).graph
    first, second = graph.values["c1.w:q"].quant, graph.values["c2.w:q"].quant
    assert first is not None and second is not None
    assert (first.bits, first.axis) == (4, None)
    assert (second.bits, second.axis) == ((4, None) if layers == ("conv",) else (8, 0))
    assert graph.values["c1"].quant.bits == 6  # type: ignore[union-attr]


def test_an_exception_that_names_nothing_is_said() -> None:
    """A name that the network does not have is a fault of the recipe, all of them at once;
    one of the host's is a note."""
    net, rules = chain(), (Override(("c1", "/c9"), bits=4), Override(("*head*",), bits=4))
    with pytest.raises(RecipeError) as error:
        net.quantised(["c2"], Quantize(overrides=rules))
    first, second = error.value.faults()
    assert first.message == 'no layer is called "/c9"' and first.hint in ('"/c1"', '"/c2"')
    assert first.where.key == "quantize.overrides[0].layers"
    assert (
        second.message == 'no layer matches "*head*"' and second.where.key == "quantize.overrides[1].layers"
    )
    done = chain().quantised(["c2"], Quantize(overrides=(Override(("c1",), bits=4),)), host=["c1"])
    assert any(
        note.node == "c1" and "only layers of the host" in note.reason and not note.on_host
        for note in done.notes
    )


def test_faults_of_names_lead_to_their_line(tmp_path: Path) -> None:
    recipe = tmp_path / "a.toml"
    one = '\n[[quantize.overrides]]\nlayers = ["{}"]\n'
    recipe.write_text("[quantize]\ntrim = true\n" + one.format("c1") + one.format("c9"))
    with pytest.raises(RecipeError) as error:
        rules = stated("quantize.overrides", (Override(("c1",)), Override(("c9",))))
        unknown_layers(chain().graph("c2"), rules)
    (fault,) = located(error.value, load(recipe)).faults()
    assert (Path(str(fault.where.file)).name, fault.where.line) == ("a.toml", 8)


def test_layers_left_in_float() -> None:
    net = chain()
    done = net.quantised(["c2"], Quantize(overrides=(Override(("c2",), float=True),)))
    assert [n.reason for n in done.notes] == ["left in float by the recipe"]
    assert done.graph.outputs == ("c2",) and done.graph.values["c2"].quant is None
    assert sqnr(net.data["c2"], net.run(done)["c2"]) > 30


def test_biases_shift_when_they_are_narrow() -> None:
    numerics = Numerics(bias_bits=8, bias_shift_max=16)
    net = Net(1, 3, 6, 6)
    net.conv("c", "x", 3, bias=np.array([5.0, -3.0, 0.1]))
    done = net.quantised(["c"], numerics=numerics)
    node = next(n for n in done.graph.nodes if n.is_integer)
    shift = dict(node.params or ())["bias_shift"]
    assert isinstance(shift, int) and shift > 0
    codes, quant = done.graph.const("c.b:q"), done.graph.values["c.b:q"].quant
    assert codes is not None and quant is not None and codes.dtype == np.int8 and abs(codes).max() > 63
    real = np.array(quant.scale) * codes
    assert np.all(np.abs(real - [5.0, -3.0, 0.1]) <= np.array(quant.scale) / 2 * 1.001)
    assert sqnr(net.data["c"], net.run(done, numerics)["c"]) > 25


def test_a_dead_channel_with_a_bias_keeps_its_bias() -> None:
    net = Net(1, 3, 6, 6)
    weight = net.rng.normal(size=(4, 3, 3, 3))
    weight[2] *= 1e-9
    net.conv("c", "x", 4, weight=weight, bias=np.array([0.5, 1.0, 7.0, -1.0]))
    for numerics in (Numerics(), Numerics(multiplier_bits=8, bias_bits=16, bias_shift_max=4)):
        done = net.quantised(["c"], numerics=numerics)
        assert not done.notes
        made = net.run(done, numerics)["c"]
        step = done.graph.values["c:q"].quant.scale[0]  # type: ignore[union-attr]
        assert np.abs(made[:, 2] - 7.0).max() <= 1.01 * step


def test_a_missing_threshold_names_its_value() -> None:
    graph = chain().graph("c2")
    with pytest.raises(TargetError, match="no threshold") as error:
        quantize_graph(graph, lambda _: True, {"x": (-1.0, 1.0)}, Quantize(), Numerics())
    assert error.value.where.value == "c1"


def test_constants_take_part_in_pairs() -> None:
    net = Net(1, 3, 4, 4)
    net.add("s", OPS["mul"](), "x", net.const("k", np.array([0.5, 2.0, -3.0]).reshape(3, 1, 1)))
    net.add("t", OPS["add"](), "s", net.const("half", 0.5))
    done = net.quantised(["t"])
    assert done.graph.values["half:q"].quant is not None
    assert sqnr(net.data["t"], net.run(done)["t"]) > 30
    wide = net.quantised(["t"], Quantize(constants=16))
    assert wide.graph.values["k:q"].quant.bits == 16  # type: ignore[union-attr]
    assert sqnr(net.data["t"], net.run(wide)["t"]) > 30


def test_one_weight_for_two_layers_may_need_two_codes() -> None:
    net = Net(1, 3, 6, 6)
    weight, bias = net.const("w", net.rng.normal(size=(3, 3, 3, 3))), net.const("b", net.rng.normal(size=3))
    op = OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    net.add("a", op, "x", weight, bias)
    net.add("b2", op, "a", weight, bias)
    graph = net.quantised(["b2"], Quantize(overrides=(Override(("b2",), weight_bits=4),))).graph
    assert {graph.values[v].quant.bits for v in graph.values if v.startswith("w:q")} == {4, 8}  # type: ignore[union-attr]
    assert len([v for v in graph.values if v.startswith("b:q")]) == 2      # another input scale, other codes


def test_the_interpreter_checks_its_inputs() -> None:
    done = chain().quantised(["c2"])
    with pytest.raises(DataError, match='no data for the input "x"'):
        interpret(done.graph, {}, Numerics())
    with pytest.raises(DataError, match="shape"):
        interpret(done.graph, {"x": np.zeros((1, 3, 4, 4), np.float32)}, Numerics())


def test_names_that_look_like_ours_do_not_collide() -> None:
    net = Net(1, 3, 6, 6)
    net.conv("x:q", "x", 3)
    net.conv("x:q:f", "x:q", 3)
    done = net.quantised(["x:q:f", "x:q"])
    found = net.run(done)
    outputs = done.graph.outputs
    for name, source in zip(outputs, ("x:q:f", "x:q"), strict=True):
        assert sqnr(net.data[source], found[name]) > 25
    assert export_model(net.graph("x:q"))


def test_inputs_of_tables_spend_no_codes_where_nothing_happens() -> None:
    net = Net(1, 3, 8, 8)
    net.conv("c", "x", 4, weight=4 * net.rng.normal(size=(4, 3, 3, 3)))
    net.add("s", OPS["silu"](), "c")
    plain, trimmed = net.quantised(["s"], Quantize(trim=False)), net.quantised(["s"])
    before, after = (d.graph.values["c"].quant.scale[0] for d in (plain, trimmed))  # type: ignore[union-attr]
    assert after < 0.75 * before
    assert sqnr(net.data["s"], net.run(trimmed)["s"]) > sqnr(net.data["s"], net.run(plain)["s"])
    # Read by someone else too, every value counts.
    both = net.quantised(["s", "c"])
    assert both.graph.values["c:q"].quant == plain.graph.values["c"].quant


def test_an_operand_too_small_to_matter_needs_no_multiplier() -> None:
    net = Net(1, 3, 4, 4)
    net.add("s", OPS["add"](), "x", net.const("epsilon", 1e-9))
    done = net.quantised(["s"], Quantize(on_refusal="error"))
    assert sqnr(net.data["s"], net.run(done)["s"]) > 30
