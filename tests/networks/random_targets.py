"""Random schemes and targets for random graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuflow.hw.target import ArrayRate, Compute, Dma, Limits, Memory, Numerics, Target
from npuflow.quantise.config import Activations, Override, Quantize, Weights

if TYPE_CHECKING:
    from tests.networks.random_operators import Draw


def scheme(d: Draw) -> Quantize:
    pick = d.rng.choice
    overrides = []
    if d.chance(0.3):
        name = pick([n.name for n in d.nodes])
        overrides.append(Override((name,), bits=pick((4, 6, 8, 12, 16)), weight_bits=pick((4, 8, None))))
    if d.chance(0.1):
        overrides.append(Override((pick([n.name for n in d.nodes]),), float=True))
    return Quantize(
        Weights(
            pick((4, 5, 6, 7, 8, 8, 16)),
            pick(("channel", "tensor")),
            d.chance(0.6),
            d.chance(0.8),
            d.chance(0.2),
        ),
        Activations(
            pick((4, 5, 6, 7, 8, 8, 8, 12, 16, 16)),
            d.chance(0.3),
            pick((None, None, None, True, True, False)),
            d.chance(0.1),
        ),
        overrides=tuple(overrides),
        constants=pick((None, None, 8)),
        trim=d.chance(0.7),
        inputs=pick(("float", "float", "integer")),
        outputs=pick(("float", "float", "integer")),
    )


def fitting(config: Quantize, numerics: Numerics) -> Quantize:
    """The scheme without what the target would refuse as a whole."""
    w, a = config.weights, config.activations
    symmetric = w.symmetric or not numerics.weight_zero_point
    signed = w.signed or symmetric
    centred = a.symmetric or not numerics.activation_zero_point or not numerics.unsigned_activations
    sign = None if a.signed is False and centred else a.signed
    weights = replace(w, symmetric=symmetric, signed=signed, narrow=w.narrow and signed)
    return replace(config, weights=weights, activations=replace(a, signed=sign))


def target(d: Draw) -> Target:
    pick = d.rng.choice
    two = d.chance(0.15)
    bits = 1 if two and d.chance(0.7) else pick((8, 15, 16, 31, 32, 32))
    return Target(
        compute=Compute(
            cores=pick((1, 1, 1, 2)),
            array_rows=pick((1, 2, 4, 8, 16)),
            array_cols=pick((1, 2, 4, 8, 16)),
            dataflow=pick(("weight_stationary", "output_stationary")),
            depthwise_macs=pick((1, 4, 16)),
            fill_cycles=4,
            command_cycles=2,
            vector_lanes=pick((1, 4, 16)),
            array_rates=pick(((ArrayRate(times=1.0), ArrayRate(8, 4, 2.0)), (ArrayRate(),))),
        ),
        numerics=Numerics(
            weight_bits=pick(((8, 16), (4, 8, 16))),
            acc_bits=(acc := pick((32, 32, 40, 48))),
            wide_acc_bits=pick((0, 0, acc, 48)),
            bias_bits=pick((16, 32, 32)),
            bias_shift_max=pick((0, 0, 4, 8)),
            multiplier_bits=bits,
            shift_left_max=pick((0, 0, 8)),
            multiplier_error=pick((0.01, 0.5)),
            rounding=pick(("half_up", "half_even", "half_away", "truncate")),
            power_of_two=two,
            per_channel_weights=d.chance(0.8),
            per_channel_clamp=d.chance(0.8),
            activation_zero_point=d.chance(0.8),
            weight_zero_point=d.chance(0.4),
            unsigned_activations=d.chance(0.85),
            table_bits=pick((4, 8, 10)),
        ),
        memory=Memory(
            local_bytes=pick((1024, 2048, 2048, 4096, 8192, 1 << 16)),
            local_banks=pick((1, 4)),
            local_align=pick((4, 16, 64)),
            local_bandwidth=pick((16, 64)),
            external_bytes=1 << 22,
            external_bandwidth=pick((1.0, 4.0, 16.0)),
            burst=pick((1, 16, 64)),
        ),
        dma=Dma(
            channels=pick((1, 1, 2, 3)),
            setup_cycles=pick((0, 8)),
            row_cycles=pick((0, 2)),
            multicast=d.chance(0.6),
        ),
        limits=Limits(
            kernel=pick((0, 0, 0, 2)),
            refuse=pick(((), (), (), ("softmax",), ("concat",), ("maxpool", "add"))),
        ),
    )
