"""The description of an NPU: a TOML file of targets/ mirrored by tables, of which stages take slices."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm
from typing import Literal

from npuflow.base.tables import Config

Rounding = Literal["half_up", "half_even", "half_away", "truncate"]
QUEUES = ("LOAD", "STORE", "TENSOR", "VECTOR")   # queue kinds of a core, in encoding order; see queue_names


@dataclass(frozen=True)
class Compute(Config, table="target.compute"):
    """MAC array and vector unit. One MAC array pass covers `array_rows` input channels x `array_cols` output channels."""

    cores: int = 1
    array_rows: int = 32
    array_cols: int = 32
    dataflow: Literal["weight_stationary", "output_stationary"] = "weight_stationary"
    depthwise_macs: int = 32              # MACs per cycle when a group has one input channel
    fill_cycles: int = 64                 # fill and drain of the array per command
    command_cycles: int = 8               # decode and issue of a command
    vector_lanes: int = 32                # element operations per cycle
    wide_factor: int = 4                  # slow-down of the MAC array with 16-bit operands
    clock_mhz: int = 1000


@dataclass(frozen=True)
class Numerics(Config, table="target.numerics"):
    """Integer arithmetic the target has. Everything that rounds or saturates reads this."""

    weight_bits: tuple[int, ...] = (8,)
    activation_bits: tuple[int, ...] = (8, 16)
    acc_bits: int = 32
    bias_bits: int = 32
    bias_shift_max: int = 0               # largest k_b of b << k_b
    multiplier_bits: int = 32             # m < 2^multiplier_bits; 1 bit: m = 1 (powers of two only)
    shift_max: int = 62                   # n of 2^-n
    shift_left_max: int = 0               # -n, a left shift
    multiplier_error: float = 0.01        # largest accepted relative error of m / 2^n
    rounding: Rounding = "half_up"
    power_of_two: bool = False            # scales are powers of two
    per_channel_weights: bool = True
    per_channel_clamp: bool = True
    activation_zero_point: bool = True
    weight_zero_point: bool = False
    signed_activations: bool = True
    unsigned_activations: bool = True
    table_bits: int = 10                  # 16-bit tables have 2^table_bits + 1 entries


@dataclass(frozen=True)
class Memory(Config, table="target.memory"):
    """Local memory of a core and the external memory all cores share; sizes in bytes, bandwidths in bytes per cycle."""

    local_bytes: int = 512 * 1024
    local_banks: int = 16
    local_align: int = 64
    local_bandwidth: int = 128
    external_bytes: int = 1 << 31
    external_bandwidth: float = 16.0
    burst: int = 64

    @property
    def slot_align(self) -> int:
        """Of whatever is placed in local memory: wide sums lie on multiples of their own 8 bytes on any target."""
        return lcm(self.local_align, 8)


@dataclass(frozen=True)
class Dma(Config, table="target.dma"):
    """DMA engines of a core."""

    channels: int = 1                     # LOAD and STORE queues per core
    setup_cycles: int = 64                # per command
    row_cycles: int = 2                   # per contiguous row beyond the first


@dataclass(frozen=True)
class Limits(Config, table="target.limits"):
    """Largest operator parameters; 0 means no limit. `operators` empty: every operator that lowers is accepted."""

    kernel: int = 0
    stride: int = 0
    dilation: int = 0
    pad: int = 0
    channels: int = 0
    pool_kernel: int = 0
    matmul_k: int = 0
    refuse: tuple[str, ...] = ()          # operator names this target cannot run


@dataclass(frozen=True)
class Target(Config, table="target"):
    """A whole NPU. `name` is for messages only: no code may ask it."""

    name: str = ""
    about: str = ""
    compute: Compute = field(default_factory=Compute)
    numerics: Numerics = field(default_factory=Numerics)
    memory: Memory = field(default_factory=Memory)
    dma: Dma = field(default_factory=Dma)
    limits: Limits = field(default_factory=Limits)


def queue_names(dma_channels: int) -> tuple[str, ...]:
    """Queues of one core in the order of a command's `wait` fields: LOAD0.., STORE0.., TENSOR, VECTOR."""
    loads = tuple(f"LOAD{i}" for i in range(dma_channels))
    stores = tuple(f"STORE{i}" for i in range(dma_channels))
    return (*loads, *stores, "TENSOR", "VECTOR")
