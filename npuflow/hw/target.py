"""The description of an NPU: a TOML file of targets/ mirrored by tables, of which stages take slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, lcm
from typing import Annotated, Literal

from npuflow.base.tables import Config, Fault, Range
from npuflow.hw import limits as inequalities
from npuflow.hw.elements import ELEMENTS, LEAST, WIDEST, wide
from npuflow.hw.energy import Energy as Energy
from npuflow.hw.grouped import GroupProduct, bits_beside
from npuflow.hw.ranges import Bits as Bits
from npuflow.hw.ranges import BlockName as BlockName
from npuflow.hw.ranges import Bytes, Cycles, Limit, Positive, Rate
from npuflow.hw.ranges import FloatName as FloatName

Rounding = Literal["half_up", "half_even", "half_away", "truncate"]
QUEUES = ("LOAD", "STORE", "TENSOR", "VECTOR")   # queue kinds of a core, in encoding order; see queue_names


@dataclass(frozen=True)
class ArrayRate(Config):
    """How fast the MAC array is on operands of up to so many bits; at 8 by 8 bits: 1."""

    activations: Bits = 16                # of the operand that streams through the array
    weights: Bits = 16                    # of the operand that is held in it
    times: Rate = 0.25                    # 0.25: four times the cycles; 2: half


@dataclass(frozen=True)
class FloatRate(Config):
    """How fast the MAC array is on a float type; on operands of 8 by 8 bits: 1."""

    type: FloatName
    times: Rate = 0.5                     # 0.5: twice the cycles


@dataclass(frozen=True)
class Compute(Config, table="target.compute"):
    """MAC array and vector unit. One MAC array pass covers `array_rows` input channels x `array_cols` output
    channels for `array_pixels` output positions in a cycle."""

    cores: Annotated[int, Range(1, 64)] = 1
    # all: the cores work on one inference together; data_parallel: each on an inference of its own
    cores_mode: Literal["all", "data_parallel"] = "all"
    array_rows: Positive = 32
    array_cols: Positive = 32
    array_pixels: Positive = 1            # output positions of one pass; 1: a plain two-dimensional array
    dataflow: Literal["weight_stationary", "output_stationary"] = "weight_stationary"
    depthwise_macs: Positive = 32         # MACs per cycle when a group has one input channel
    fill_cycles: Cycles = 64              # fill and drain of the array per command
    # per array pass of a command: a new block of weights, and draining the array
    pass_cycles: Cycles = 0
    command_cycles: Cycles = 8            # decode and issue of a command
    vector_lanes: Positive = 32           # element operations per cycle
    # speed of the MAC array by the widths of its operands; 8 by 8 bits: 1
    array_rates: tuple[ArrayRate, ...] = (ArrayRate(),)
    clock_mhz: Positive = 1000
    # speed of the MAC array on weights with the zeros of target.numerics.sparsity, beside dense ones
    sparse_times: Rate = 2.0
    # speed of the MAC array on the float types of target.numerics
    float_rates: tuple[FloatRate, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one core in a cycle, at 8 bits."""
        return self.array_rows * self.array_cols * self.array_pixels

    @property
    def instances(self) -> int:
        """Inferences that run at the same time."""
        return self.cores if self.cores_mode == "data_parallel" else 1

    @property
    def of_one_inference(self) -> Compute:
        """What one inference has of it."""
        return replace(self, cores=self.cores // self.instances, cores_mode="all")

    def slowness(self, activations: int, weights: int, number: str = "") -> Fraction:
        """Cycles on operands of so many bits, or of a type `number` of floats or sparse weights, in multiples
        of those at 8 by 8 bits: of all rates that cover both widths, the fastest."""
        if number and ELEMENTS[number].sparse is not None:
            return self.slowness(activations, weights) / Fraction(self.sparse_times)
        if number:
            return 1 / Fraction(max(r.times for r in self.float_rates if r.type == number))
        rates = [r.times for r in self.array_rates if activations <= r.activations and weights <= r.weights]
        if max(activations, weights) <= 8:
            rates.append(1.0)
        return 1 / Fraction(max(rates))

    @staticmethod
    def paced(cycles: int, slowness: Fraction) -> int:
        """Cycles at 8 by 8 bits on other operands, in whole ones."""
        return ceil(cycles * slowness)

    def check(self) -> Iterator[Fault]:
        if not any(r.activations == r.weights == WIDEST for r in self.array_rates):
            yield Fault(
                "array_rates",
                f"no rate covers {WIDEST} by {WIDEST} bits",
                hint=f"add {{ activations = {WIDEST}, weights = {WIDEST}, times = 0.25 }}",
                code="NF-TARGET-013",
            )
        if self.array_pixels > 1 and self.dataflow == "output_stationary":
            yield Fault(
                "array_pixels",
                "an output-stationary array keeps its positions in its rows", hint="array_pixels = 1",
                code="NF-TARGET-002",
            )


@dataclass(frozen=True)
class Numerics(Config, table="target.numerics"):
    """Integer arithmetic the target has. Everything that rounds or saturates reads this."""

    weight_bits: Annotated[tuple[Bits, ...], Range(LEAST, WIDEST)] = (8,)
    activation_bits: Annotated[tuple[Bits, ...], Range(LEAST, WIDEST)] = (8, 16)
    acc_bits: Annotated[int, Range(16, 64)] = 32
    # of sums over operands wider than 8 bits; 0: as acc_bits
    wide_acc_bits: Annotated[int, Range(0, 64)] = 0
    bias_bits: Annotated[int, Range(8, 64)] = 32
    bias_shift_max: Annotated[int, Range(0, 31)] = 0     # largest k_b of b << k_b
    # m < 2^multiplier_bits; 1 bit: m = 1 (powers of two only)
    multiplier_bits: Annotated[int, Range(1, 32)] = 32
    # of the multiplier in place of a division by the elements of a mean; 0: as multiplier_bits
    mean_bits: Annotated[int, Range(0, 32)] = 0
    shift_max: Annotated[int, Range(0, 62)] = 62         # n of 2^-n
    shift_left_max: Annotated[int, Range(0, 32)] = 0     # -n, a left shift
    multiplier_error: Annotated[float, Range(0, 1)] = 0.01   # largest accepted relative error of m / 2^n
    rounding: Rounding = "half_up"
    power_of_two: bool = False            # scales are powers of two
    per_channel_weights: bool = True
    # so many consecutive input channels of a weight may have a scale of their own; empty: none
    weight_groups: Annotated[tuple[int, ...], Range(1, 1 << 16)] = ()
    # products with weights in groups of float16 scales, by the type of their activations; empty: none
    group_products: tuple[GroupProduct, ...] = ()
    # zeros of weights that the array skips, which are stored without them: two of every four input channels
    sparsity: Literal["", "2:4"] = ""
    per_channel_clamp: bool = True
    activation_zero_point: bool = True
    weight_zero_point: bool = False
    group_zero_points: bool = False       # groups of weight_groups may have zero points of their own, too
    signed_activations: bool = True
    unsigned_activations: bool = True
    table_bits: Annotated[int, Range(4, 15)] = 10        # 16-bit tables have at most 2^table_bits + 2 entries
    float_types: tuple[FloatName, ...] = ()              # that layers can be computed in
    # consecutive terms of a sum of float products that are added exactly and rounded once, to float32
    float_chunk: Annotated[int, Range(1, 4096)] = 64

    @property
    def integers(self) -> bool:
        """Whether layers can be computed in integers; a target of floats alone lists no widths."""
        return bool(self.weight_bits or self.activation_bits)

    def accumulator(self, bits: int) -> int:
        """Accumulator bits of a sum whose widest operand has so many bits."""
        return self.wide_acc_bits or self.acc_bits if wide(bits) else self.acc_bits

    def group_bits(self, activations: str, bits: int, group: int) -> int:
        """Bits of codes in a product of `group_products`; 0: there is none for these."""
        return bits_beside(self.group_products, activations, bits, group)

    @property
    def of_means(self) -> Numerics:
        """The same with the multipliers of means."""
        return replace(self, multiplier_bits=max(self.multiplier_bits, self.mean_bits))

    def check(self) -> Iterator[Fault]:
        if 0 < self.wide_acc_bits < self.acc_bits:
            yield Fault(
                "wide_acc_bits",
                f"{self.wide_acc_bits} bits are fewer than the {self.acc_bits} of narrow operands",
                code="NF-TARGET-003",
            )
        for name in ("weight_bits", "activation_bits"):
            others = self.float_types and not self.integers
            if not getattr(self, name) and not others:
                yield Fault(name, "no width is given", hint="[8]", code="NF-TARGET-004")
        if not (self.signed_activations or self.unsigned_activations):
            yield Fault(
                "signed_activations",
                "activations can be neither signed nor unsigned",
                code="NF-TARGET-005",
            )
        if self.weight_groups and (self.multiplier_bits == 1 or not self.per_channel_weights):
            yield Fault(
                "weight_groups",
                "scales by groups need a scale per channel and multipliers of more than one bit",
                hint="leave it out", code="NF-TARGET-014",
            )
        if self.group_zero_points and not (self.weight_groups and self.weight_zero_point):
            yield Fault(
                "group_zero_points",
                "zero points of groups need groups of weights and weights with zero points",
                hint="weight_groups = [64] and weight_zero_point = true, or leave it out",
                code="NF-TARGET-017",
            )
        yield from self._group_faults()
        if self.multiplier_bits == 1 and not self.power_of_two:
            because = "with 1 bit the multiplier is 1, so that all scales must be powers of two"
            yield Fault(
                "multiplier_bits",
                "a multiplier of 1 bit needs power-of-two scales",
                because,
                "power_of_two = true",
                code="NF-TARGET-006",
            )

    def _group_faults(self) -> Iterator[Fault]:
        for one in self.group_products:
            whole = one.activations == "int16"
            if whole and max(self.activation_bits, default=0) < WIDEST:
                yield Fault(
                    "group_products", "weights in groups beside int16, which the target does not compute in",
                    hint="activation_bits = [8, 16], or leave it out", code="NF-TARGET-074",
                )
            if not whole and one.activations not in self.float_types:
                yield Fault(
                    "group_products", f"weights in groups beside {one.activations}, which float_types lacks",
                    hint=f'float_types = ["{one.activations}"], or leave it out', code="NF-TARGET-075",
                )


@dataclass(frozen=True)
class Memory(Config, table="target.memory"):
    """Local memory of a core and the external memory all cores share; sizes in bytes,
    bandwidths in bytes per cycle."""

    local_bytes: Bytes = 512 * 1024
    local_banks: Positive = 16            # equal consecutive parts of the local memory
    # commands that a bank serves at once; 0: any number, no conflicts
    bank_ports: Annotated[int, Range(0, 8)] = 0
    local_align: Positive = 64
    local_bandwidth: Positive = 128
    external_bytes: Bytes = 1 << 31
    external_bandwidth: Rate = 16.0
    burst: Positive = 64
    # on-chip memory of all cores: the first bytes of the DATA space
    shared_bytes: Annotated[int, Range(0, 1 << 32)] = 0
    shared_bandwidth: Rate = 64.0

    @property
    def slot_align(self) -> int:
        """Of whatever is placed in local memory: wide sums lie on multiples of their
        own 8 bytes on any target."""
        return lcm(self.local_align, 8)

    def check(self) -> Iterator[Fault]:
        if self.bank_ports and self.local_bytes % self.local_banks:
            yield Fault(
                "local_banks",
                f"{self.local_bytes} bytes are not {self.local_banks} equal banks", code="NF-TARGET-007",
            )
        if self.local_align > self.local_bytes:
            yield Fault(
                "local_align",
                f"{self.local_align} is more than the {self.local_bytes} bytes of local memory",
                code="NF-TARGET-008",
            )
        if self.shared_bytes > self.external_bytes:
            because = f"{self.shared_bytes} > {self.external_bytes}"
            yield Fault(
                "shared_bytes",
                "the shared memory is a part of the address space that external_bytes counts", because,
                code="NF-TARGET-009",
            )
        if self.shared_bytes and self.shared_bandwidth < self.external_bandwidth:
            because = f"{self.shared_bandwidth:g} < {self.external_bandwidth:g} bytes per cycle"
            yield Fault(
                "shared_bandwidth",
                "the shared memory is slower than the external one", because, code="NF-TARGET-010",
            )


@dataclass(frozen=True)
class Dma(Config, table="target.dma"):
    """DMA engines of a core."""

    channels: Annotated[int, Range(1, 7)] = 1            # LOAD and STORE queues per core
    setup_cycles: Cycles = 64             # per command
    row_cycles: Cycles = 2                # per contiguous row beyond the first
    multicast: bool = False               # one load may write the same bytes to several cores (multicast)


@dataclass(frozen=True)
class HostProcessor(Config, table="target.host"):
    """The processor next to the NPU, which runs in float what the NPU does not. Rates are
    per cycle of the NPU's clock."""

    # float multiply-accumulates: one core of four lanes at the NPU's clock
    macs_per_cycle: Rate = 4.0
    elements_per_cycle: Rate = 1.0        # elements computed, moved, or converted between float and codes


@dataclass(frozen=True)
class LimitRule(Config, table="target.limits.rules"):
    """An inequality that operators must satisfy, over the numbers that the reference
    page of targets lists."""

    operators: tuple[str, ...]            # names of operators, as `npuflow ops` lists them
    need: str                             # e.g. "kernel_h * kernel_w * ceil(in_channels / 16) <= 2048"
    when: str = ""                        # a further inequality: the rule holds for the nodes that satisfy it
    about: str = ""                       # what in the machine sets this limit

    def check(self) -> Iterator[Fault]:
        for name in ("need", "when"):
            for message in (
                inequalities.faults(getattr(self, name)) if getattr(self, name) or name == "need" else ()
            ):
                yield Fault(
                    name,
                    f"the rule cannot be read: {message}",
                    hint=f"names: {', '.join(inequalities.VARIABLES)}",
                    code="NF-TARGET-011",
                )
        if not self.operators:
            yield Fault("operators", "the rule names no operator", code="NF-TARGET-012")


@dataclass(frozen=True)
class Limits(Config, table="target.limits"):
    """Largest operator parameters; 0 means no limit. `rules` express what a single number cannot."""

    kernel: Limit = 0
    stride: Limit = 0
    dilation: Limit = 0
    pad: Limit = 0
    channels: Limit = 0
    pool_kernel: Limit = 0
    matmul_k: Limit = 0
    refuse: tuple[str, ...] = ()          # operator names this target cannot run
    rules: tuple[LimitRule, ...] = ()


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
    host: HostProcessor = field(default_factory=HostProcessor)
    energy: Energy | None = None

    def check(self) -> Iterator[Fault]:
        blocks = [name for name in self.numerics.float_types if ELEMENTS[name].block is not None]
        if blocks and "bfloat16" not in self.numerics.float_types:
            yield Fault(
                "numerics.float_types",
                f"{blocks[0]} without bfloat16, the type of its layers' activations",
                hint='add "bfloat16"',
                code="NF-TARGET-065",
            )
        rates = {rate.type for rate in self.compute.float_rates}
        for name in self.numerics.float_types:
            if name not in rates:
                yield Fault(
                    "compute.float_rates",
                    f"no rate for {name}, which numerics.float_types lists",
                    hint=f'add {{ type = "{name}", times = 0.5 }}',
                    code="NF-TARGET-015",
                )
        yield from self._priced()

    def _priced(self) -> Iterator[Fault]:
        """Every arithmetic that the target has must have a figure, where it has a table of energy."""
        if self.energy is None:
            return
        priced = {one.type for one in self.energy.float_macs}
        for name in self.numerics.float_types:
            if name not in priced:
                yield Fault(
                    "energy.float_macs",
                    f"no figure for {name}, which numerics.float_types lists",
                    hint=f'add {{ type = "{name}", pj = 2.0 }}',
                    code="NF-TARGET-072",
                )
        if self.numerics.integers and not self.energy.macs:
            yield Fault(
                "energy.macs", "no figure for integers, which numerics lists widths of",
                hint="macs = [{ activations = 16, weights = 16, pj = 0.9 }]", code="NF-TARGET-073",
            )


def queue_names(dma_channels: int) -> tuple[str, ...]:
    """Queues of one core in the order of a command's `wait` fields: LOAD0.., STORE0.., TENSOR, VECTOR."""
    loads = tuple(f"LOAD{i}" for i in range(dma_channels))
    stores = tuple(f"STORE{i}" for i in range(dma_channels))
    return (*loads, *stores, "TENSOR", "VECTOR")
