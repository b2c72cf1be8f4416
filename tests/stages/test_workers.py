"""Workers that die and workers on other networks: how little is run twice, and the bytes of one thread."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.flow.run_state import shares
from tests.stages.test_sharded_builds import network, observed, products, run

COUNT = 200
BATCH = 32                     # of the stage `observed`


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    network(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(0, 1, (COUNT, 1, 12, 12)).astype(np.float32))
    text = (
        f'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "x.npy"\ncount = {COUNT}\nchoose '
        '= "first"\n'
    )
    (tmp_path / "net.toml").write_text(text)
    return tmp_path / "net.toml"


def tracing(path: Path) -> Any:
    """A plugin of workers: whoever observes a sample writes its process and the sample's
    name, and is slow about it."""
    from distributed import WorkerPlugin

    class Tracing(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: Any) -> None:
            import os
            import time

            from npuflow.statistics import walk

            usual: Callable[..., Any] = walk._Group.observe

            def observe(group: Any, number: int, sample: str, *rest: Any, **more: Any) -> Any:
                with path.open("a") as trace:
                    trace.write(f"{os.getpid()} {sample}\n")
                time.sleep(0.02)
                return usual(group, number, sample, *rest, **more)

            walk._Group.observe = observe  # type: ignore[method-assign,assignment]

    return Tracing()


def lines(trace: Path) -> list[tuple[int, str]]:
    rows = [line.split() for line in trace.read_text().splitlines()] if trace.exists() else []
    return [(int(pid), sample) for pid, sample in rows]


def killer(trace: Path, number: int, killed: list[int]) -> None:
    """Kill so many workers, each in the middle of a batch."""
    deadline = time.monotonic() + 120
    while len(killed) < number and time.monotonic() < deadline:
        for pid, seen in Counter(pid for pid, _ in lines(trace)).items():
            if seen >= 5 and pid not in killed and len(killed) < number:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_killed_worker_costs_at_most_its_batch(recipe: Path, deaths: int) -> None:
    """Every sample is observed; what runs twice is no more than one batch for every worker that dies."""
    from distributed import Client, LocalCluster

    trace, killed = recipe.parent / "trace", list[int]()
    one = products(run(recipe, "one", jobs=1))
    limits = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(**limits) as cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
        client.register_plugin(tracing(trace))
        assassin = threading.Thread(target=killer, args=(trace, deaths, killed))
        assassin.start()
        result = run(recipe, "killed", scheduler=cluster.scheduler_address)
        assassin.join()
    assert len(killed) == deaths and products(result) == one
    seen = Counter(sample for _, sample in lines(trace))
    twice, count = sum(seen.values()) - len(seen), len(observed(result))
    assert len(seen) == count > COUNT / 2              # others choose and verify
    assert twice <= deaths * shares(BATCH, count, 2)(count)
    # What the dead had finished of their batches was kept, so that only the sample under way is run again.
    assert twice <= 2 * deaths, twice


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def networks() -> Iterator[tuple[str, str, str]]:
    """Three network namespaces: a driver's and scheduler's, and two that reach it and not each other."""
    names = tuple(f"npu-{secrets.token_hex(3)}" for _ in range(3))
    try:
        if shutil.which("ip") is None or not all(ip("netns", "add", name) for name in names):
            pytest.skip("network namespaces cannot be made here")
        for i, name in enumerate(names):
            assert ip("-n", name, "link", "set", "lo", "up")
            if i:
                assert ip(
                    "-n", names[0], "link", "add", f"v{i}", "type", "veth", "peer", "name", "v", "netns", name
                )
                assert ip("-n", names[0], "addr", "add", f"10.77.{i}.1/24", "dev", f"v{i}")
                assert ip("-n", names[0], "link", "set", f"v{i}", "up")
                assert ip("-n", name, "addr", "add", f"10.77.{i}.2/24", "dev", "v") and ip(
                    "-n", name, "link", "set", "v", "up"
                )
        yield names  # type: ignore[misc]
    finally:
        for name in names:
            ip("netns", "del", name)


BUILD = """
import json, sys
from collections import Counter
from pathlib import Path
from distributed import Client
from npuflow.flow.recipe_build import build
recipe, address = Path(sys.argv[1]), sys.argv[2]
with Client(address) as client:
    client.wait_for_workers(2, timeout=60)
    places = sorted(client.scheduler_info()["workers"])
far, out = recipe.parent / "far", recipe.parent / "far-out"
found = build(recipe, cache=far, out=out, until="thresholds", scheduler=address)
outputs = {stage: found.outputs[stage] for stage in ("statistics", "thresholds")}
observed = Counter(found.status["statistics.items"].values())
print(json.dumps({"outputs": outputs, "places": places, "observed": observed}))
"""


@pytest.mark.slow
def test_workers_in_networks_of_their_own_give_the_bytes_of_one_thread(
    recipe: Path, networks: tuple[str, str, str]
) -> None:
    one = products(run(recipe, "one", jobs=1))
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}

    def inside(name: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", name, sys.executable, *words]

    quiet: Any = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    commands = [
        inside(networks[0], "-m", "distributed.cli.dask_scheduler", "--port", "8786", "--no-dashboard")
    ]
    for i in (1, 2):
        worker = inside(networks[i], "-m", "distributed.cli.dask_worker", f"tcp://10.77.{i}.1:8786")
        commands.append([*worker, "--nthreads", "1", "--no-dashboard", "--no-nanny"])
    running = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        driver = inside(networks[0], "-c", BUILD, str(recipe), "tcp://127.0.0.1:8786")
        done = subprocess.run(
            driver, env=env, cwd=root, capture_output=True, text=True, check=False, timeout=300
        )
    finally:
        for process in reversed(running):      # a worker of dask's whose scheduler is gone may wait for ever
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["outputs"] == one and found["observed"].keys() == {"ran"}
    assert found["observed"]["ran"] > COUNT / 2            # others choose and verify
    assert [place.rpartition(":")[0] for place in found["places"]] == ["tcp://10.77.1.2", "tcp://10.77.2.2"]
