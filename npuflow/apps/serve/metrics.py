"""Counts of a server in Prometheus' text format."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from npuflow.apps.serve.text.counts import Durations, TextCounts

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Counts:
    """Of one model: answers by status, and how long they took."""

    answers: Counter[int] = field(default_factory=Counter)
    samples: int = 0
    seconds: Durations = field(default_factory=lambda: Durations(SECONDS))
    good: float = 0.0  # seconds of the answers with status 200
    decoded: int = 0  # requests that were read
    decoding: float = 0.0  # seconds
    encoding: float = 0.0  # seconds
    last: float = 0.0  # when the last good answer was made, in seconds of the epoch

    def add(self, status: int, seconds: float, samples: int) -> None:
        self.answers[status] += 1
        self.samples += samples
        self.seconds.add(seconds)
        if status == 200:
            self.good += seconds
            self.last = time.time()


@dataclass(frozen=True)
class Shown:
    """What one model's lines are made of."""

    counts: Counts
    waiting: int
    batches: Mapping[int, int]  # samples computed together -> how often


def text(models: Mapping[str, Shown], texts: Mapping[str, TextCounts]) -> str:
    """The page of /metrics. `texts`: of the models that make text."""
    return "\n".join([*_lines(models), *(_text_lines(texts) if texts else ())]) + "\n"


def _lines(models: Mapping[str, Shown]) -> Iterator[str]:
    rows = {_label(name): shown for name, shown in models.items()}
    answers = [
        (f'{{model="{name}",code="{code}"}}', count)
        for name, one in rows.items()
        for code, count in sorted(one.counts.answers.items())
    ]
    samples = [(f'{{model="{name}"}}', one.counts.samples) for name, one in rows.items()]
    waiting = [(f'{{model="{name}"}}', one.waiting) for name, one in rows.items()]
    yield from _family("npuflow_requests_total", "counter", "Inference requests by HTTP status.", answers)
    yield from _family("npuflow_samples_total", "counter", "Samples computed.", samples)
    yield from _family("npuflow_waiting_requests", "gauge", "Samples that wait for a batch.", waiting)
    seconds, sizes = {}, {}
    for name, one in rows.items():
        seconds[name] = one.counts.seconds.row
        total = float(sum(size * times for size, times in one.batches.items()))
        sizes[name] = ([(float(size), times) for size, times in sorted(one.batches.items())], 0, total)
    arrival = "Seconds from a request's arrival to its answer."
    yield from _histogram("npuflow_request_seconds", arrival, seconds)
    yield from _histogram("npuflow_batch_size", "Samples computed together.", sizes)


def _text_lines(models: Mapping[str, TextCounts]) -> Iterator[str]:
    """Lines of models that make text."""
    rows = {_label(name): counts for name, counts in models.items()}
    answers = [
        (f'{{model="{name}",code="{code}"}}', count)
        for name, one in rows.items() for code, count in sorted(one.answers.items())
    ]
    tokens = [
        (f'{{model="{name}",kind="{kind}"}}', count)
        for name, one in rows.items()
        for kind, count in (("prompt", one.prompt), ("generated", one.generated))
    ]
    active = [(f'{{model="{name}"}}', one.active) for name, one in rows.items()]
    waiting = [(f'{{model="{name}"}}', one.waiting) for name, one in rows.items()]
    yield from _family("npuflow_text_requests_total", "counter", "Requests for text by HTTP status.", answers)
    yield from _family("npuflow_text_tokens_total", "counter", "Tokens of prompts, and made.", tokens)
    yield from _family("npuflow_text_sessions", "gauge", "Texts that are being made.", active)
    yield from _family("npuflow_text_waiting", "gauge", "Texts that wait for a session.", waiting)
    first = {name: one.first.row for name, one in rows.items()}
    yield from _histogram("npuflow_text_first_token_seconds", "Seconds from arrival to a first token.", first)
    whole = {name: one.seconds.row for name, one in rows.items()}
    yield from _histogram("npuflow_text_request_seconds", "Seconds from arrival to the answer's end.", whole)


def _family(name: str, kind: str, description: str, rows: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"
    yield from (f"{name}{labels} {value}" for labels, value in rows)


def _histogram(
    name: str, description: str, rows: Mapping[str, tuple[list[tuple[float, int]], int, float]]
) -> Iterator[str]:
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} histogram"
    for model, (buckets, rest, total) in rows.items():
        seen = 0
        for bound, count in buckets:
            seen += count
            yield f'{name}_bucket{{model="{model}",le="{bound}"}} {seen}'
        yield f'{name}_bucket{{model="{model}",le="+Inf"}} {seen + rest}'
        yield f'{name}_sum{{model="{model}"}} {total}'
        yield f'{name}_count{{model="{model}"}} {seen + rest}'


def _label(name: str) -> str:
    return name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
