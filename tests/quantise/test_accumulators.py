"""Sums that may leave the accumulator: refused with numbers, or operands requantised until they fit."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS
from npuflow.place.partition import npu_share
from npuflow.quantise.config import Activations, Quantize
from tests.networks.by_hand import Net, chain, sqnr


def test_sums_that_leave_the_accumulator_are_refused_with_numbers() -> None:
    net, narrow = chain(), Numerics(acc_bits=18)
    with pytest.raises(TargetError, match=r"terms reach .*: (19|20) bits, the accumulator has 18") as error:
        net.quantised(["c2"], Quantize(on_refusal="error"), narrow)
    assert error.value.where.node in ("/c1", "/c2")
    done = net.quantised(["c2"], numerics=narrow)
    assert "/c2" in [n.node for n in done.notes] and "accumulator has 18" in done.notes[0].reason
    assert done.graph.outputs == ("c2",)                                  # computed by the host instead
    assert sqnr(net.data["c2"], net.run(done, narrow)["c2"]) > 30


def test_wide_operands_of_a_product_are_requantised_until_its_sums_fit() -> None:
    """16 by 16 bits over 32 terms need 37 bits; on 32 the operands give up five bits
    between them, and the NPU runs it."""
    net = Net(2, 8, 32)
    net.add("t", OPS["transpose"]((0, 2, 1)), "x")
    net.add("y", OPS["matmul"](), "x", "t")
    numerics = Numerics(acc_bits=32, weight_bits=(8, 16))
    done = net.quantised(["y"], Quantize(activations=Activations(bits=16)), numerics)
    (note,) = done.notes
    assert (
        not note.on_host and "requantised to 14 bits and 13 bits" in note.reason and "37 bits" in note.reason
    )
    assert [type(n.op).__name__ for n in done.graph.nodes if n.is_integer].count("Requantize") == 2
    assert npu_share(done.graph) == 1.0
    assert sqnr(net.data["y"], net.run(done, numerics)["y"]) > 65


@pytest.mark.parametrize(
    "chip",
    [
        Numerics(acc_bits=25),
        Numerics(
            acc_bits=25,
            multiplier_bits=1,
            power_of_two=True,
            per_channel_weights=False,
            activation_zero_point=False,
            shift_left_max=8,
        ),
    ],
)
def test_the_wide_input_of_a_layer_is_requantised_until_its_sums_fit(chip: Numerics) -> None:
    """27 products of 16 by 8 bits with a bias do not fit 25 bits: the input gives up what they
    lack, and nothing else changes."""
    net = Net(1, 3, 8, 8)
    net.conv("c", "x", 4)
    done = net.quantised(["c"], Quantize(activations=Activations(bits=16)), chip)
    (note,) = done.notes
    assert not note.on_host and "the accumulator has 25" in note.reason
    bits = [v.quant.bits for k, v in done.graph.values.items() if k.startswith("x:q:") and v.quant]
    assert len(bits) == 1 and 9 <= bits[0] < 16 and f"to {bits[0]} bits" in note.reason
    assert npu_share(done.graph) == 1.0 and done.graph.values["c:q"].quant.bits == 16  # type: ignore[union-attr]
    assert sqnr(net.data["c"], net.run(done, chip)["c"]) > 35


def test_wide_operands_may_have_a_wider_accumulator() -> None:
    """16 by 16 bits on a target that sums them in 48: nothing is narrowed, and nothing is refused."""
    net = Net(2, 8, 32)
    net.add("t", OPS["transpose"]((0, 2, 1)), "x")
    net.add("y", OPS["matmul"](), "x", "t")
    numerics = Numerics(acc_bits=32, wide_acc_bits=48)
    done = net.quantised(["y"], Quantize(activations=Activations(bits=16)), numerics)
    assert not done.notes and npu_share(done.graph) == 1.0
    assert sqnr(net.data["y"], net.run(done, numerics)["y"]) > 75


def test_the_accumulator_proof_is_sharp() -> None:
    """All-positive weights and inputs reach the proved bound exactly: one bit fewer
    is refused, and rightly."""
    net = Net(1, 1, 3, 3)
    net.data["x"] = np.full((1, 1, 3, 3), 1.0, np.float32)
    net.conv("c", "x", 1, weight=np.ones((1, 1, 3, 3)), bias=np.zeros(1))
    largest = 9 * 127 * 255
    enough = largest.bit_length() + 1
    assert not net.quantised(["c"], numerics=Numerics(acc_bits=enough)).notes
    assert net.quantised(["c"], numerics=Numerics(acc_bits=enough - 1)).notes
