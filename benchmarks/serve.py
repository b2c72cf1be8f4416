"""The server under load: clients that send one sample after the other, and what batches across them gain.

Starts `npuflow serve` on a program with --max-batch 1 and with --max-batch 8 in turn. Clients send binary
requests over loopback. Prints rate, median and p99 of each, and the ratio of the rates.

    python benchmarks/serve.py PROGRAM [--seconds 20] [--clients 8] [--rounds 2] [--exact simulator]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from npuflow import Runner

HEADER = "Inference-Header-Content-Length"


@dataclass
class Load:
    """What the clients saw of one server."""

    seconds: float = 0.0
    took: list[float] = field(default_factory=list)
    errors: int = 0
    processor: float = 0.0  # seconds that the server computed

    @property
    def rate(self) -> float:
        return len(self.took) / self.seconds

    @property
    def cost(self) -> float:
        return 1e3 * self.processor / len(self.took)

    def text(self) -> str:
        median, high = (1e3 * float(np.percentile(self.took, q)) for q in (50, 99))
        times = f"median {median:6.2f} ms  p99 {high:6.2f} ms"
        return (
            f"{self.rate:7.0f} requests/s  {times}  errors {self.errors}  processor {self.cost:.3f} ms each"
        )


def request(program: str, place: str, name: str) -> bytes:
    """One binary request, as bytes on the wire."""
    rng, rows, parts = np.random.default_rng(0), [], []
    kinds = {"float32": "FP32", "uint8": "UINT8", "int8": "INT8", "int64": "INT64"}
    for port in Runner(program).inputs:
        dtype = "uint8" if port.codes else port.dtype  # codes or pixels are sent as they are
        array = rng.uniform(0, 1 if dtype.startswith("float") else 100, [abs(d) for d in port.shape]).astype(
            dtype
        )
        row = {"name": port.name, "datatype": kinds[dtype], "shape": list(array.shape)}
        rows.append({**row, "parameters": {"binary_data_size": array.nbytes}})
        parts.append(array.tobytes())
    table = json.dumps({"inputs": rows, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([table, *parts])
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: {place}\r\n{HEADER}: {len(table)}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def client(place: str, text: bytes, end: float, load: Load) -> None:
    """Requests one after the other on one connection."""
    host, port = place.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while (start := time.perf_counter()) < end:
        writer.write(text)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(v) for k, v in _headers(head) if k == b"content-length")
        await reader.readexactly(size)
        load.took.append(time.perf_counter() - start)
        load.errors += not head.startswith(b"HTTP/1.1 200")
    writer.close()


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    rows = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return [(name.lower(), value.strip()) for name, _, value in rows]


async def clients(place: str, text: bytes, count: int, seconds: float, load: Load) -> None:
    start = time.perf_counter()
    await asyncio.gather(*(client(place, text, start + seconds, load) for _ in range(count)))
    load.seconds += time.perf_counter() - start


def spent(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(program: str, more: list[str], count: int, seconds: float, load: Load) -> None:
    """One server from its start to its stop."""
    words = [sys.executable, "-u", "-m", "npuflow", "serve", f"net={program}", "--port", "0"]
    with subprocess.Popen([*words, *more], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place = process.stdout.readline().split("/")[2]
        text = request(program, place, "net")
        asyncio.run(clients(place, text, count, min(2.0, seconds), Load()))  # kernels are loaded, sizes bound
        start = spent(process.pid)
        asyncio.run(clients(place, text, count, seconds, load))
        load.processor += spent(process.pid) - start
        process.send_signal(signal.SIGTERM)
        if process.wait(30) != 0:
            raise SystemExit(f"the server ended with {process.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--exact", choices=("executor", "simulator"), default="executor")
    given = parser.parse_args()
    loads = {1: Load(), 8: Load()}
    for _ in range(given.rounds):  # turn by turn: other work on the machine meets both
        for batch, load in loads.items():
            more = ["--max-batch", str(batch), "--exact", given.exact]
            measure(given.program, more, given.clients, given.seconds / given.rounds, load)
    for batch, load in loads.items():
        print(f"max batch {batch}  {load.text()}")
    rates, costs = loads[8].rate / loads[1].rate, loads[1].cost / loads[8].cost
    medians = float(np.median(loads[1].took) / np.median(loads[8].took))
    print(f"ratio of rates {rates:.2f}, of medians {medians:.2f}, of processor time a request {costs:.2f}")


if __name__ == "__main__":
    main()
