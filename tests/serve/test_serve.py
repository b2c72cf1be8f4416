"""The server, asked by tritonclient and by hand: results, limits, metrics, an orderly stop."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from npuflow.apps.serve.served import Served
from npuflow.runner.runner import Runner
from tests.runner.programs import accumulating, feeds, split
from tests.serve.served import Running, running

SAMPLES = feeds(8)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = (
        Served("net", Runner(split(), batch=4, linger=0.1)),
        Served("sums", Runner(accumulating()), most=4),
    )
    with running(*models) as one:
        yield one


@pytest.fixture(scope="module")
def want() -> list[np.ndarray]:
    return [one["y"] for one in Runner(split(), exact="simulator").run_many(SAMPLES)]


def asked(array: np.ndarray, name: str = "x", binary: bool = True) -> client.InferInput:
    kinds = {"float32": "FP32", "float64": "FP64", "int32": "INT32"}
    found = client.InferInput(name, list(array.shape), kinds[array.dtype.name])
    found.set_data_from_numpy(array, binary_data=binary)
    return found


def call(place: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(place, timeout=20)
    connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if "json" in str(answer.getheader("Content-Type")) else text


def test_health_and_metadata(server: Running) -> None:
    one = client.InferenceServerClient(server.place)
    assert one.is_server_live() and one.is_server_ready() and one.is_model_ready("net")
    assert not one.is_model_ready("none") and one.is_model_ready("net", "1")
    assert one.get_server_metadata()["name"] == "npuflow"
    net, sums = one.get_model_metadata("net"), one.get_model_metadata("sums")
    assert net["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [4, 32]}]
    assert sums["inputs"][0]["shape"] == [-1, 3] and sums["platform"] == "npuflow"


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_results_are_the_programs(
    binary: bool, packed: str | None, server: Running, want: list[np.ndarray]
) -> None:
    one = client.InferenceServerClient(server.place)
    for sample, expected in zip(SAMPLES[:2], want, strict=False):
        outputs = [client.InferRequestedOutput("y", binary_data=binary)]
        found = one.infer(
            "net",
            [asked(sample["x"], binary=binary)],
            outputs=outputs,
            request_id="a7",
            request_compression_algorithm=packed,
        )
        np.testing.assert_array_equal(found.as_numpy("y"), expected)
        assert found.get_response()["id"] == "a7" and found.get_response()["model_name"] == "net"
        np.testing.assert_array_equal(one.infer("net", [asked(sample["x"])]).as_numpy("y"), expected)


def test_samples_of_one_request_and_of_many_are_computed_together(
    server: Running, want: list[np.ndarray]
) -> None:
    one = client.InferenceServerClient(server.place, concurrency=8)
    waiting = [one.async_infer("net", [asked(sample["x"])]) for sample in SAMPLES]
    for request, expected in zip(waiting, want, strict=True):
        np.testing.assert_array_equal(request.get_result().as_numpy("y"), expected)
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    found = one.infer("sums", [asked(x), asked(np.ones((3, 3), np.float32), "carried")])
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * (x + 1))
    with pytest.raises(InferenceServerException, match="1 to 4 samples, not 5"):
        five = np.zeros((5, 3), np.float32)
        one.infer("sums", [asked(five), asked(five, "carried")])
    sizes = re.findall(
        r'npuflow_batch_size_bucket{model="net",le="(\d)\.0"} (\d+)',
        call(server.place, "GET", "/metrics")[1].decode(),
    )
    assert max(int(size) for size, _ in sizes) > 1


def test_mistakes_are_answered_with_their_reason(server: Running) -> None:
    one = client.InferenceServerClient(server.place)
    for inputs, said in (
        ([asked(np.zeros((4, 31), np.float32))], r"shape \(4, 31\)"),
        ([asked(np.zeros((4, 32), np.float32), "z")], 'no input "z"|no data for the input "x"'),
    ):
        with pytest.raises(InferenceServerException, match=said):
            one.infer("net", inputs)
    with pytest.raises(InferenceServerException, match='no output "w"'):
        one.infer("net", [asked(SAMPLES[0]["x"])], outputs=[client.InferRequestedOutput("w")])
    with pytest.raises(InferenceServerException, match=r'no model "\.\.%2F'):
        one.infer("..%2F..%2Fetc%2Fpasswd", [asked(SAMPLES[0]["x"])])
    status, said = call(server.place, "GET", "/no/such/page")
    assert status == 404 and "/v2/models/NAME" in said["error"]
    status, said = call(server.place, "DELETE", "/v2/models/net")
    assert status == 405 and "DELETE is not for this address: GET" in said["error"]
    assert call(server.place, "POST", "/v2/models/net/versions/7/infer", b"{}")[0] == 404
    status, said = call(server.place, "POST", "/v2/models/net/infer", b"x" * ((1 << 20) + 1))
    assert status == 413 and "--max-mb" in said["error"]


def body(**more: Any) -> dict[str, Any]:
    data = SAMPLES[0]["x"].reshape(-1).tolist()
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 32], "data": data, **more}]}


def test_a_thousand_malformed_requests(server: Running, want: list[np.ndarray]) -> None:
    """None is answered with 200 or 500, and the server serves on."""
    rng = np.random.default_rng(7)
    good = json.dumps(body()).encode()
    connection = http.client.HTTPConnection(server.place, timeout=20)
    seen: dict[int, int] = {}
    for i in range(1000):
        text, headers = _malformed(rng, good, i)
        connection.request("POST", "/v2/models/net/infer", text, headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert answer.status in (400, 413) and said["error"], (i, text[:200], headers, said)
        seen[answer.status] = seen.get(answer.status, 0) + 1
    assert sum(seen.values()) == 1000
    status, found = call(server.place, "POST", "/v2/models/net/infer", good)
    assert status == 200 and found["outputs"][0]["data"] == want[0].reshape(-1).tolist()


VALUES = (
    None,
    True,
    -1,
    0,
    1.5,
    1 << 70,
    "",
    "FP32",
    "INT4",
    [],
    [-1],
    [4, 31],
    [4, "32"],
    [[4], 32],
    [4] * 40,
    {},
    {"a": 1},
    [None],
    [1 << 50, 1 << 50],
)
WRONG = {
    "name": (None, 3, "", "y", ["x"]),
    "datatype": (None, "INT4", "FP16", "BOOL", "UINT8", "BYTES", 5),
    "shape": tuple(v for v in VALUES if v != [4, 32]),
    "data": VALUES,
    "parameters": (3, [], "a", {"binary_data_size": 5}, {"binary_data_size": "5"}, {"binary_data_size": -1}),
}


def _malformed(rng: np.random.Generator, good: bytes, i: int) -> tuple[bytes, dict[str, str]]:
    """A request that no server must accept, of a kind that `i` chooses."""
    kind = i % 6
    if kind == 0:  # cut off
        return good[: rng.integers(0, len(good) - 1)], {}
    if kind == 1:  # noise
        return rng.bytes(int(rng.integers(1, 400))), {}
    if kind == 2:  # a length of the JSON that is not the JSON's
        size = rng.choice(
            ["-1", "x", "1e3", "99999999999", "9" * 40, str(rng.integers(1, len(good) - 1)), "0"]
        )
        return good, {"Inference-Header-Content-Length": str(size)}
    if kind == 3:  # one wrong field
        field = rng.choice(list(WRONG))
        value = WRONG[field][rng.integers(len(WRONG[field]))]
        return json.dumps(body(**{field: value})).encode(), {}
    if kind == 4:  # one wrong table
        table = [
            [],
            3,
            None,
            {"inputs": 3},
            {"inputs": []},
            {"inputs": [3]},
            {"inputs": body()["inputs"] * 2},
            {**body(), "outputs": 3},
            {**body(), "outputs": [{"name": "q"}]},
            {**body(), "id": 5},
            {**body(), "parameters": []},
            {**body(), "parameters": {"timeout": -5}},
            {**body(), "parameters": {"timeout": "soon"}},
        ][rng.integers(13)]
        return json.dumps(table).encode(), {}
    deep = int(rng.integers(1000, 60000))  # nested beyond any use
    return b'{"inputs":' + b"[" * deep + b"]" * int(rng.choice([deep, 0])) + b"}", {}


POST = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: a\r\n"


def test_damaged_http_does_not_stop_the_server(server: Running) -> None:
    host, port = server.place.split(":")
    rng = np.random.default_rng(1)
    for text in (
        b"\x16\x03\x01\x00\xee",
        b"GET",
        b"POST /v2/models/net/infer HTTP/1.1\r\nContent-Length: -4\r\n\r\n",
        POST + b"Content-Length: 100\r\n\r\nshort",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
        *(rng.bytes(300) for _ in range(20)),
        POST + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    ):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(text)
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(5)
            while raw.recv(4096):
                pass
    assert call(server.place, "GET", "/v2/health/ready") == (200, {"ready": True})


class Slow:
    """A backend that takes its time."""

    def __init__(self, seconds: float) -> None:
        self.inner, self.seconds = Runner(accumulating()).backend, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, samples: Any, dump: Any) -> Any:
        time.sleep(self.seconds)
        return self.inner.run(samples, dump)


def slow(seconds: float, **limits: Any) -> Runner:
    runner = Runner(accumulating(), batch=1, **limits)
    runner.backend = Slow(seconds)  # type: ignore[assignment]
    return runner


ONES = {
    "inputs": [{"name": n, "datatype": "FP32", "shape": [1, 3], "data": [1, 1, 1]} for n in ("x", "carried")]
}


def test_full_and_late_requests_are_refused() -> None:
    with running(Served("slow", slow(0.3, limit=1), timeout=1.0)) as one:
        path, found = "/v2/models/slow/infer", []
        text = json.dumps(ONES)
        threads = [
            threading.Thread(target=lambda: found.append(call(one.place, "POST", path, text)[0]))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.03)
        for thread in threads:
            thread.join()
        assert sorted(found) == [200, 200, 503, 503]
        late = json.dumps({**ONES, "parameters": {"timeout": 50_000}})
        status, said = call(one.place, "POST", path, late)
        assert status == 504 and "0.05 s" in said["error"]
        page = call(one.place, "GET", "/metrics")[1].decode()
        for code, count in ((200, 2), (503, 2), (504, 1)):
            assert f'npuflow_requests_total{{model="slow",code="{code}"}} {count}\n' in page
        assert 'npuflow_request_seconds_count{model="slow"} 5' in page
        for line in page.splitlines():
            assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+{[^{}]*} [0-9.e+-]+", line), line


def test_what_has_begun_is_answered_before_it_stops() -> None:
    found: list[Any] = []
    with running(Served("slow", slow(0.5))) as one:
        thread = threading.Thread(
            target=lambda: found.append(call(one.place, "POST", "/v2/models/slow/infer", json.dumps(ONES)))
        )
        thread.start()
        time.sleep(0.2)
    thread.join()
    assert found[0][0] == 200 and found[0][1]["outputs"][0]["data"] == [4.0, 4.0, 4.0]


def test_the_verb_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    split().save(tmp_path / "net.npu")
    words = [sys.executable, "-m", "npuflow", "serve", f"a={tmp_path / 'net.npu'}", str(tmp_path / "net.npu")]
    with subprocess.Popen(
        [*words, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v2/models/a  \(executor\)\n", lines[0])
        one = client.InferenceServerClient(lines[1].split("/")[2])
        assert one.infer("net", [asked(SAMPLES[0]["x"])]).as_numpy("y").shape == (4, 32)
        one.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_names_and_ports_that_cannot_be(tmp_path: Path, server: Running) -> None:
    from typer.testing import CliRunner

    from npuflow.base.errors import UsageError
    from npuflow.cli._app import application

    split().save(tmp_path / "net.npu")
    path = str(tmp_path / "net.npu")
    port = server.place.split(":")[1]
    for words, code in (
        ([path, path], "NF-RUN-023"),
        ([f"a/b={path}"], "NF-RUN-023"),
        ([f"stats={path}"], "NF-RUN-023"),
        ([path, "--port", port], "NF-RUN-022"),
    ):
        failed = CliRunner().invoke(application("serve"), ["serve", *words])
        assert isinstance(failed.exception, UsageError) and failed.exception.code == code
