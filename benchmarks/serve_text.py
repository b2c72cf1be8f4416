"""Texts of a served language model: streaming clients, some of which hang up, against the generator alone.

Starts `npuflow serve CHECKPOINT`, and lets clients ask for the same few texts again and again, as streams. A
share of them hangs up: before the answer, in the middle of it, or in the middle of a line. Every answer that
is read to its end must be what the generator makes alone, in this process. At the end no session may be left.

    python benchmarks/serve_text.py CHECKPOINT... [--seconds 60] [--clients 8] [--tokens 16] [--hang-up 0.3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import study

from npuflow import Runner
from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import CheckpointTokenizer, tokenizer
from npuflow.runner.text import TextGenerator, TokenSampling

PROMPTS = (
    "The capital of France is", "Once upon a time", "def add(a, b):", "Water boils at", "1, 2, 3,",
    "The three primary colours are",
)


HELD = ('sessions{model="net"}', 'waiting{model="net"}')
TOKENS = tuple(f'tokens_total{{model="net",kind="{kind}"}}' for kind in ("prompt", "generated"))


@dataclass(frozen=True)
class Asked:
    """A request, and the text and the end that it must have."""

    body: bytes
    text: str
    finish: str


@dataclass
class Seen:
    """What the clients saw."""

    finished: int = 0
    hung_up: int = 0
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    seconds: float = 0.0


def requests(generator: TextGenerator, words: CheckpointTokenizer, tokens: int) -> list[Asked]:
    """Completions and conversations, greedy and drawn, with and without strings that stop them."""
    found = []
    for i, text in enumerate(PROMPTS):
        chat, temperature = i % 2 == 1, 0.8 * (i % 3)
        messages = [{"role": "user", "content": text}]
        prompt = words.chat(messages) if chat else words.encode(text)
        stream = generator.stream(prompt, tokens, TokenSampling(temperature, 0.9, i))
        wanted = "".join(stream)
        stop = wanted[len(wanted) // 2 :][:3] if i % 3 == 0 else ""
        body = {
            "model": "net", "stream": True, "max_tokens": tokens, "temperature": temperature, "top_p": 0.9,
            "seed": i, **({"messages": messages} if chat else {"prompt": text}),
            **({"stop": stop} if stop else {}),
        }
        end = "stop" if stop or stream.ended == "stop" else "length"
        data = json.dumps(body).encode()
        path = "/v1/chat/completions" if chat else "/v1/completions"
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        found.append(Asked(head.encode() + data, wanted.partition(stop)[0] if stop else wanted, end))
    return found


async def client(
    place: str, number: int, asked: Sequence[Asked], end: float, share: float, seen: Seen
) -> None:
    """One request after the other, each on a connection of its own; some are left before their end."""
    draw, (host, port) = random.Random(number), place.split(":")
    while (begun := time.perf_counter()) < end:
        one = draw.choice(asked)
        leave = draw.randrange(3000) if draw.random() < share else None      # bytes that are read
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(one.body)
        data = b""
        while leave is None or len(data) < leave:
            part = await reader.read(4096 if leave is None else min(4096, leave - len(data)))
            if not part:
                break
            seen.first += [time.perf_counter() - begun] if b"data:" in part and b"data:" not in data else []
            data += part
        if leave is not None and draw.random() < 0.5:
            writer.transport.abort()                                         # a reset in place of an end
        writer.close()
        if leave is not None and b"[DONE]" not in data:
            seen.hung_up += 1
            continue
        seen.whole.append(time.perf_counter() - begun)
        judged(one, data, seen)


def judged(one: Asked, data: bytes, seen: Seen) -> None:
    """An answer that was read to its end against what it must be."""
    head, _, body = data.partition(b"\r\n\r\n")
    seen.statuses[head.split(b" ")[1].decode()] += 1
    events = [json.loads(text) for text in re.findall(rb"^data: (\{.*\})\r?$", body, re.M)]
    choices = [event["choices"][0] for event in events if "choices" in event]
    text = "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)
    finish = choices[-1]["finish_reason"] if choices else None
    if (text, finish) == (one.text, one.finish) and b"data: [DONE]" in body:
        seen.finished += 1
    else:
        seen.wrong.append(f"{finish} {text!r}, not {one.finish} {one.text!r}: {data[-300:]!r}")


async def clients(place: str, count: int, asked: Sequence[Asked], seconds: float, share: float) -> Seen:
    seen, start = Seen(), time.perf_counter()
    await asyncio.gather(*(client(place, i, asked, start + seconds, share, seen) for i in range(count)))
    seen.seconds = time.perf_counter() - start
    return seen


def figures(place: str) -> dict[str, float]:
    """The gauges and token counts of /metrics."""
    with urllib.request.urlopen(f"http://{place}/metrics") as answer:
        page = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^npuflow_text_(\S+) (\S+)$", page, re.M)}


def memory(pid: int) -> float:
    """Megabytes of a process that are its own."""
    return int(re.findall(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1024


def settled(place: str) -> dict[str, float]:
    """The figures once the last clients that hung up are noticed; after ten seconds as they are."""
    end = time.perf_counter() + 10
    while True:
        found = figures(place)
        if not any(found[name] for name in HELD) or time.perf_counter() > end:
            return found
        time.sleep(0.1)


def rows(seen: Seen, begun: dict[str, float], found: dict[str, float]) -> list[tuple[str, str]]:
    statuses = ", ".join(f"{code}: {count}" for code, count in sorted(seen.statuses.items()))
    prompt, made = (found[name] - begun[name] for name in TOKENS)
    return [
        ("seconds", f"{seen.seconds:.1f}"),
        ("answers read to their end", f"{seen.finished + len(seen.wrong)} ({statuses})"),
        ("of these wrong", str(len(seen.wrong))),
        ("clients that hung up", str(seen.hung_up)),
        ("sessions left, waiting left", ", ".join(f"{found[name]:.0f}" for name in HELD)),
        ("tokens of prompts, made", f"{prompt:,.0f}, {made:,.0f}"),
        ("tokens a second, of both kinds", f"{(prompt + made) / seen.seconds:.1f}"),
        ("first event: median, largest (s)", f"{np.median(seen.first):.2f}, {max(seen.first):.2f}"),
        ("whole answer: median, largest (s)", f"{np.median(seen.whole):.2f}, {max(seen.whole):.2f}"),
    ]


def measured(
    path: Path, given: argparse.Namespace, asked: Sequence[Asked]
) -> tuple[bool, list[tuple[str, str]], list[str]]:
    """One server from its start to its stop: whether all is well, the figures, and wrong answers."""
    words = [sys.executable, "-u", "-m", "npuflow", "serve", f"net={path}", "--port", "0"]
    words += ["--sessions", str(given.sessions), "--timeout", "600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place = process.stdout.readline().split("/")[2]
        asyncio.run(clients(place, given.clients, asked, min(5.0, given.seconds), 0.0))  # all caches at once
        begun, before = figures(place), memory(process.pid)
        seen = asyncio.run(clients(place, given.clients, asked, given.seconds, given.hang_up))
        end = settled(place)
        found = rows(seen, begun, end)
        found.append(("memory of its own before, after (MB)", f"{before:.0f}, {memory(process.pid):.0f}"))
        process.send_signal(signal.SIGTERM)
        if process.wait(30) != 0:
            raise SystemExit(f"the server ended with {process.returncode}")
    return not seen.wrong and seen.finished > 0 and not any(end[name] for name in HELD), found, seen.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--hang-up", type=float, default=0.3, help="share of requests")
    parser.add_argument("--write", action="store_true", help="write the study")
    given = parser.parse_args()
    tables, all_well = [], True
    for path in given.checkpoints:
        words = tokenizer(opened(path))
        asked = requests(TextGenerator(Runner(path), words), words, given.tokens)
        well, found, wrong = measured(path, given, asked)
        tables.append(found)
        all_well = all_well and well
        lines = [path.name, *(f"{name:40} {value}" for name, value in found), *wrong[:5]]
        print("\n".join(lines), flush=True)
    if given.write:
        write(given, tables)
    raise SystemExit(not all_well)


def write(given: argparse.Namespace, tables: list[list[tuple[str, str]]]) -> None:
    table = "\n".join(
        f"| {row[0][0]} | {' | '.join(value for _, value in row)} |" for row in zip(*tables, strict=True)
    )
    names = [path.name for path in given.checkpoints]
    study.write(__file__, f"""# Texts of `npuflow serve` under clients that hang up

`python benchmarks/serve_text.py {" ".join(names)} --seconds {given.seconds:g}`: {given.clients}
streaming clients over loopback, {given.sessions} sessions, at most {given.tokens} tokens a text;
{given.hang_up:.0%} of the requests are left at a random place. Completions and conversations, greedy and
drawn, some with strings that stop them. Every answer that was read to its end is compared with what the
generator makes alone in another process, by the checkpoint in floats.

| | {" | ".join(names)} |
| --- |{" --- |" * len(names)}
{table}
""")


if __name__ == "__main__":
    main()
