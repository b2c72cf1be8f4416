"""What Triton's clients ask beside inference: statistics, the list of models, a model's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.apps.serve.metrics import Counts
from npuflow.apps.serve.protocol import VERSION
from npuflow.apps.serve.served import Served
from npuflow.apps.serve.tensors import NAMES, ProtocolError
from npuflow.runner.ports import Port


def statistics(models: Sequence[Served]) -> dict[str, Any]:
    """The statistics extension: counts and nanoseconds since the start, by model and size of batch."""
    return {"model_stats": [_statistics(one.name, one.counts, one) for one in models]}


def index(models: Sequence[Served], ready: bool) -> list[dict[str, str]]:
    """The models of the server and their state."""
    state, reason = ("READY", "") if ready else ("UNAVAILABLE", "the server stops")
    return [{"name": one.name, "version": VERSION, "state": state, "reason": reason} for one in models]


def configuration(one: Served) -> dict[str, Any]:
    """A model's configuration as Triton has it: where samples stack, without the axis of samples."""
    runner = one.runner
    found: dict[str, Any] = {
        "name": one.name,
        "platform": "npuflow",
        "backend": "npuflow",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": one.most if one.batched else 0,
        "input": [_tensor(port, one.batched) for port in runner.inputs],
        "output": [_tensor(port, one.batched) for port in runner.outputs],
        "instance_group": [{"name": one.name, "kind": "KIND_CPU", "count": runner.workers}],
        "parameters": {"exact": {"string_value": runner.exact}},
    }
    if one.batched:
        found["dynamic_batching"] = {
            "preferred_batch_size": [runner.batch],
            "max_queue_delay_microseconds": round(runner.linger * 1e6),
        }
    return found


def load(one: Served) -> None:
    """Nothing, where the model is as the server opened it; ProtocolError (403) where its file has changed."""
    if one.changed():
        raise ProtocolError(
            f'the file of "{one.name}" has changed since the server opened it; models are opened when the '
            "server starts: start it again",
            403,
        )


def unload(one: Served) -> None:
    """Always a ProtocolError (403): clients do not take models from each other."""
    raise ProtocolError(
        f'"{one.name}" is not unloaded: the server has the models of its command line until it stops', 403
    )


def _tensor(port: Port, batched: bool) -> dict[str, Any]:
    name = NAMES.get(port.dtype, port.dtype)
    dims = list(port.shape) if port.ranked else [-1]
    kind = "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}"
    return {"name": port.name, "data_type": kind, "dims": dims[1:] if batched else dims}


def _statistics(name: str, counts: Counts, one: Served) -> dict[str, Any]:
    times = one.batches.times
    runs = dict(sorted(times.computed.items()))
    return {
        "name": name,
        "version": VERSION,
        "last_inference": round(counts.last * 1e3),
        "inference_count": counts.samples,
        "execution_count": sum(count for count, _ in runs.values()),
        "inference_stats": {
            "success": _duration(counts.answers[200], counts.good),
            "fail": _duration(counts.answers.total() - counts.answers[200], counts.seconds.sum - counts.good),
            "queue": _duration(times.started, times.waited),
            "compute_input": _duration(counts.decoded, counts.decoding),
            "compute_infer": _duration(sum(n for n, _ in runs.values()), sum(s for _, s in runs.values())),
            "compute_output": _duration(counts.answers[200], counts.encoding),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _duration(count, 0.0),
                "compute_infer": _duration(count, seconds),
                "compute_output": _duration(count, 0.0),
            }
            for size, (count, seconds) in runs.items()
        ],
    }


def _duration(count: int, seconds: float) -> Mapping[str, int]:
    return {"count": count, "ns": max(0, round(seconds * 1e9))}
