"""What a program's metadata must hold, and the checks that let everything after loading rely on it.

    name         str, for messages
    target       compute, numerics, memory, dma, limits: the tables of the target
    inputs       [{"name", "shape", "dtype"}], outputs likewise (shape null: known when it runs); names
                 are value ids. "pixels" of an input that takes them: {"scale", "shift", "axis", "zero"}; the
                 model's own numbers are pixel * scale + shift, a number each per channel (axis, counted from
                 the end; null: one for all), the input holds pixel - zero
    state        [[output, input]]: what the next run's input holds, zeros at first; absent if there is none
    instances    inferences that run at the same time, each on cores of its own with its own DATA; absent: 1.
                 The target is then what one of them has, and all else is of one of them
    values       id -> {"address", "shape", "dtype", "quant", "node"}: integer tensors in DATA, dense, C
                 order; `node` is the index of the node whose STOREs complete it (null: the runner writes it),
                 `owner` the value whose bytes it shares
    steps        in order: {"kind": "npu", "segment", "first": [per core], "count": [per core]}
                 {"kind": "host", "model": index, "inputs": [ids], "outputs": [ids]}
                 {"kind": "quantize" | "dequantize", "value": id, "out": id, "quant": {...}}; "rows": of the
                 table that they are indices into, if they are some; "parts": where there are several tables,
                 how many elements and the rows of their table (0: no indices), by turns
    nodes        [{"name", "op", "origin", "macs"}], what word 1 of a command counts; `host`: {"macs",
                 "elements", "bytes"} of a node that costs the host time
    lengths      [{"input", "least", "most", "address", "axes": {port: axis}}]: inputs that say how many steps
                 a run has, where in DATA their number is written before it (32 bits), and along which axes
                 ports go on by steps; `strides`: {port: [stride, more]} of outputs that have
                 (steps + more) // stride steps; `cleared`: values whose codes are those of 0 before a run
    indices      [{"input", "most", "new", "address", "axes": {port: axis}, "attended"}]: inputs of which a
                 run's commands depend as on an index: its largest number, rows that a run adds, where in DATA
                 it is written before it (32 bits), the axes of rows of caches, and whether commands read so
                 far at it, or write at it; `modulo`: rows of a ring, of which the one at the rest is written:
                 DATA has the rest
    rings        [{"index", "rows", "window", "most"}]: states of so many rows that keep the newest ones of a
                 sequence: see `ir/rings.py`; absent if there is none
    loops        [{"loop", "numbers", "nodes", "each", "rounds", "blocks"}]: the program has the steps
                 `numbers` of a loop, from 0, and `nodes` of each by index; rounds of `each` steps between
                 those that lead in and the last one run `rounds` times. By core, `blocks` has the first
                 command of the rounds among all commands and how many a round has (null: none). `outer`: of
                 an inner loop the index of its outer one, whose first round its block is in; `late`: of fewer
                 rounds the last ones run; absent if there is none
    data_bytes, const_bytes, local_bytes
    preparation  {"alpha", "colour", "steps"} of the recipe's [data], when it has steps: how a picture becomes
                 the inputs
Anything else (memory map, notes) is kept and not judged. `quant`: bits, signed, scale, zero_point, axis,
group, narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.base.step_count import StepCount
from npuflow.hw.elements import TABLE

CONTAINERS = {
    row.name: row.bytes
    for row in TABLE
    if row.kind == "int" and not row.packed and row.block is None and row.bits <= 32
}
MAX_RANK = 16
WORD = 4                                  # bytes of a number that commands read
MAX_BYTES = 1 << 32


def check_meta(meta: Mapping[str, Any], counts: Sequence[int], const_bytes: int, hosts: int) -> None:
    """Every fact that the simulator and the runner use, checked once; the first fault is a ModelError."""
    for name in ("data_bytes", "const_bytes", "local_bytes"):
        need(natural(meta.get(name), MAX_BYTES), f"{name} is not a size")
    need(
        meta["const_bytes"] == const_bytes,
        f"const_bytes is {meta['const_bytes']}, the section has {const_bytes}",
    )
    need(
        meta["local_bytes"] == meta["target"]["memory"]["local_bytes"],
        "local_bytes differs from the target's",
    )
    need(
        len(counts) == meta["target"]["compute"]["cores"],
        f"{len(counts)} command streams for the target's cores",
    )
    for kind in ("inputs", "outputs"):
        for entry in _items(meta, kind):
            need(
                isinstance(entry, dict) and isinstance(entry.get("name"), str),
                f"an entry of {kind} has no name",
            )
            # null: the host's, whose rank depends on the data
            if kind == "inputs" or entry.get("shape", ()) is not None:
                _shape(entry.get("shape"), f"{kind} {entry['name']}")
            need(isinstance(entry.get("dtype"), str), f"{kind} {entry['name']} has no dtype")
            if entry.get("pixels") is not None:
                _pixels(entry["pixels"], f"{kind} {entry['name']}")
    _lengths(meta)
    _indices(meta)
    instances = meta.get("instances", 1)
    need(natural(instances, 64) and instances, "instances is no number of inferences")
    _state(meta)
    _rings(meta)
    _loops(meta, counts)
    values = meta.get("values")
    need(isinstance(values, dict), "values is not an object")
    for name, value in meta["values"].items():
        _value(name, value, meta["data_bytes"])
    for node in _items(meta, "nodes"):
        need(isinstance(node, dict) and isinstance(node.get("name"), str), "a node has no name")
        _host(node)
    _steps(meta, counts, hosts)


def _state(meta: Mapping[str, Any]) -> None:
    """Pairs of an output and an input of one type; no input is of two."""
    if "state" not in meta:
        return
    ends = [{entry["name"]: entry for entry in meta[kind]} for kind in ("outputs", "inputs")]
    rows = _items(meta, "state")
    for row in rows:
        need(isinstance(row, list) and len(row) == 2 and _texts(row), "a state is no pair of names")
        made, given = (side.get(name) for side, name in zip(ends, row, strict=True))
        need(made is not None and given is not None, f"the state {row} names no output and input")
        assert made is not None and given is not None
        same = all(made.get(key) == given.get(key) for key in ("shape", "dtype", "quant"))
        need(same and -1 not in made["shape"], f"the state {row} has two types")
    need(len({row[1] for row in rows}) == len(rows), "an input is the state of two outputs")


def _rings(meta: Mapping[str, Any]) -> None:
    """An input that counts, and fewer rows than it counts, as many as a window has or more."""
    inputs = {entry["name"] for entry in meta["inputs"]}
    for row in _items(meta, "rings") if "rings" in meta else ():
        good = isinstance(row, dict) and set(row) == {"index", "rows", "window", "most"}
        need(good and row["index"] in inputs, "a ring is of no input")
        need(all(natural(row[name], MAX_BYTES) for name in ("rows", "window", "most")), "a ring has no sizes")
        need(0 < row["window"] <= row["rows"] < row["most"], "a ring has no rows, or all of them")


def _loops(meta: Mapping[str, Any], counts: Sequence[int]) -> None:
    """Steps of nodes that there are, and blocks among the commands of each core."""
    for row in _items(meta, "loops") if "loops" in meta else ():
        need(isinstance(row, dict) and isinstance(row.get("loop"), str), "a loop has no name")
        numbers, nodes, blocks = (row.get(name) for name in ("numbers", "nodes", "blocks"))
        need(_counts(numbers) and numbers, "a loop has no numbers of steps")
        good = isinstance(nodes, list) and len(nodes) == len(numbers) and all(map(_counts, nodes))
        need(good and all(n < len(meta["nodes"]) for step in nodes for n in step), "a loop has other nodes")
        need(all(natural(row.get(name), MAX_BYTES) for name in ("each", "rounds")), "a loop has no rounds")
        need(2 * row["each"] < len(numbers), "a loop has too few steps for two rounds")
        need(isinstance(blocks, list) and len(blocks) == len(counts), "a loop has no block a core")
        for block, count in zip(blocks, counts, strict=True):
            good = block is None or (_counts(block) and len(block) == 2 and block[1])
            need(good and (block is None or block[0] <= count), "a loop's block is none of the commands")
        need(natural(row.get("outer", 0), len(meta["loops"]) - 1), "a loop's outer one is none")
        need(type(row.get("late", False)) is bool, "a loop does not say which rounds run")
        skipped = row.get("skipped", [0, 0])      # of a program at a number of steps: see `counts.py`
        need(_counts(skipped) and len(skipped) == 2, "a loop does not say which rounds are skipped")


def _counts(numbers: object) -> bool:
    """Whether these are numbers from 0 on."""
    return isinstance(numbers, list) and all(natural(n, MAX_BYTES) for n in numbers)


def _lengths(meta: Mapping[str, Any]) -> None:
    """Numbers of steps: of inputs, in DATA behind all values; ports have as many along their axes."""
    if "lengths" not in meta:
        return
    ports = {entry["name"]: entry["shape"] for kind in ("inputs", "outputs") for entry in meta[kind]}
    for row in _items(meta, "lengths"):
        need(isinstance(row, dict) and row.get("input") in ports, "a number of steps is of no input")
        least, most, address = (row.get(name) for name in ("least", "most", "address"))
        need(natural(most, MAX_BYTES) and natural(least, most) and least, "a number of steps has no range")
        need(natural(address, meta["data_bytes"] - WORD), "a number of steps has no address in DATA")
        axes, strides = row.get("axes"), row.get("strides", {})
        need(_strides(strides), "strides of steps are no pairs of numbers")
        good = isinstance(axes, dict) and strides.keys() <= axes.keys() and all(
            name in ports and natural(axis, len(ports[name] or ()) - 1)
            and ports[name][axis] == StepCount(*strides.get(name, ())).of(most) for name, axis in axes.items()
        )
        need(good, "an axis of steps is of no port, or has another length")
    need(_texts(meta.get("cleared")), "what is cleared is no list of names")
    need(set(meta["cleared"]) <= set(meta.get("values", ())), "what is cleared is no value")


def _strides(found: object) -> bool:
    """By port a stride, and a number that may be below 0."""
    return isinstance(found, dict) and all(
        isinstance(row, list) and len(row) == 2 and natural(row[0], MAX_BYTES) and row[0]
        and natural(row[1] + MAX_BYTES if type(row[1]) is int else None, 2 * MAX_BYTES)
        for row in found.values()
    )


def _indices(meta: Mapping[str, Any]) -> None:
    """Inputs that are one number, which lies in DATA."""
    sizes = {entry["name"]: prod(entry["shape"]) for entry in meta["inputs"]}
    ports = {entry["name"] for kind in ("inputs", "outputs") for entry in meta[kind]}
    for row in _items(meta, "indices") if "indices" in meta else ():
        good = isinstance(row, dict) and sizes.get(row.get("input")) == 1
        need(good, "an index is of no input of one number")
        need(all(natural(row.get(name), MAX_BYTES) for name in ("most", "new")), "an index has no range")
        axes = row.get("axes")
        need(isinstance(axes, dict) and set(axes) <= ports, "an axis of rows is of no port")
        need(type(row.get("attended")) is bool, "an index does not say what it is for")
        ring = row.get("modulo", 1)
        need(natural(ring, MAX_BYTES) and ring, "an index has no rows of a ring")
        need(natural(row.get("address"), meta["data_bytes"] - WORD), "an index has no address in DATA")


def _host(node: Mapping[str, Any]) -> None:
    host = node.get("host")
    if host is not None:
        good = isinstance(host, dict) and set(host) == {"macs", "elements", "bytes"}
        need(good and all(natural(v, 1 << 62) for v in host.values()), f"node {node['name']!r}: host")


def _pixels(found: Any, what: str) -> None:
    need(isinstance(found, dict) and natural(found.get("zero"), 255), f"{what}: zero of its pixels")
    axis, many = found.get("axis"), 1
    need(axis is None or (type(axis) is int and -MAX_RANK <= axis < 0), f"{what}: axis of its pixels")
    for name in ("scale", "shift"):
        numbers = found.get(name)
        good = (
            isinstance(numbers, list)
            and numbers
            and all(isinstance(n, int | float) and isfinite(n) for n in numbers)
        )
        need(good and (name == "shift" or all(numbers)), f"{what}: {name} of its pixels")
        many = max(many, len(numbers))
    need(many == 1 or axis is not None, f"{what}: {many} numbers for its pixels and no axis")


def check_quant(quant: Any, what: str) -> None:
    """A quantisation as the runner reads it."""
    need(isinstance(quant, dict), f"{what} has no quantisation")
    need(natural(quant.get("bits"), 32) and quant["bits"] >= 1, f"{what}: bits")
    need(isinstance(quant.get("signed"), bool), f"{what}: signed")
    scale, zero = quant.get("scale"), quant.get("zero_point")
    need(
        isinstance(scale, list) and isinstance(zero, list) and scale and len(zero) in (1, len(scale)),
        f"{what}: scale",
    )
    need(all(isinstance(s, int | float) and isfinite(s) and s > 0 for s in scale), f"{what}: scale")
    need(all(type(z) is int and abs(z) < 1 << 31 for z in zero), f"{what}: zero_point")
    axis, group = quant.get("axis"), quant.get("group")
    need(axis is None or natural(axis, MAX_RANK), f"{what}: axis")
    need(group is None or (natural(group, 1 << 20) and len(scale) * group <= MAX_BYTES), f"{what}: group")


def _value(name: str, value: Any, data_bytes: int) -> None:
    what = f"value {name!r}"
    need(isinstance(value, dict) and value.get("dtype") in CONTAINERS, f"{what} has no integer dtype")
    _shape(value.get("shape"), what)
    need(all(d >= 0 for d in value["shape"]), f"{what} has a free dimension")
    size = prod(value["shape"]) * CONTAINERS[value["dtype"]]
    need(natural(value.get("address"), MAX_BYTES), f"{what} has no address")
    need(
        value["address"] + size <= data_bytes,
        f"{what} ends at {value['address'] + size}, outside DATA of {data_bytes} bytes",
    )
    if value.get("quant") is not None:
        check_quant(value["quant"], what)
    node = value.get("node")
    need(node is None or natural(node, 1 << 32), f"{what}: node")


def _steps(meta: Mapping[str, Any], counts: Sequence[int], hosts: int) -> None:
    done = [0] * len(counts)
    known = {entry["name"] for entry in meta["inputs"]}
    for step in _items(meta, "steps"):
        kind = step.get("kind") if isinstance(step, dict) else None
        if kind == "npu":
            first, count = step.get("first"), step.get("count")
            for name, numbers in (("first", first), ("count", count)):
                good = (
                    isinstance(numbers, list)
                    and len(numbers) == len(counts)
                    and all(natural(n, 1 << 32) for n in numbers)
                )
                need(good, f"a segment's {name} is not one number per core")
            need(first == done, "segments do not follow each other in the command streams")
            done = [a + b for a, b in zip(done, step["count"], strict=True)]
            known |= set(meta["values"])
        elif kind == "host":
            need(natural(step.get("model"), hosts - 1), "a host step names no model of the program")
            need(
                _texts(step.get("inputs")) and _texts(step.get("outputs")),
                "a host step has no inputs or outputs",
            )
            need(set(step["inputs"]) <= known, "a host step reads a value that nothing produces")
            known |= set(step["outputs"])
        elif kind in ("quantize", "dequantize"):
            need(
                isinstance(step.get("value"), str) and isinstance(step.get("out"), str),
                f"a {kind} step names no values",
            )
            check_quant(step.get("quant"), f"{kind} of {step['value']!r}")
            need(natural(step.get("rows", 0), 1 << 32), f"{kind} of {step['value']!r}: rows are no number")
            parts = step.get("parts", [])
            need(
                isinstance(parts, list) and not len(parts) % 2 and all(natural(n, 1 << 32) for n in parts),
                f"{kind} of {step['value']!r}: parts are no pairs of numbers",
            )
            need(step["value"] in known, f"{kind} reads {step['value']!r}, which nothing produces")
            known.add(step["out"])
        else:
            raise ModelError(f"unknown step {kind!r}", code="NF-PROGRAM-012")
    need(done == list(counts), f"the steps run {done} of {list(counts)} commands")
    missing = [o["name"] for o in meta["outputs"] if o["name"] not in known]
    need(not missing, f"nothing produces the output {missing[:1]}")


def _items(meta: Mapping[str, Any], name: str) -> list[Any]:
    need(isinstance(meta.get(name), list), f"{name} is not a list")
    return list(meta[name])


def _shape(shape: Any, what: str) -> None:
    good = isinstance(shape, list | tuple) and len(shape) <= MAX_RANK
    need(good and all(type(d) is int and -1 <= d < MAX_BYTES for d in shape), f"{what} has no shape")


def _texts(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(n, str) for n in names)


def natural(value: Any, top: int) -> bool:
    """Whether a value out of JSON is a whole number from 0 to `top`."""
    return type(value) is int and 0 <= value <= top


def need(condition: Any, message: str, what: str = "metadata is") -> None:
    if not condition:
        raise ModelError(f"the program's {what} wrong: {message}", code="NF-PROGRAM-013")
