"""The server, asked by tritonclient and by hand: results, limits, metrics, an orderly stop."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from npuflow.engine.running.runner import Runner
from npuflow.serve.served import Served
from tests.running.programs import accumulating, feeds, split
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


@pytest.mark.parametrize(
    ("encoding", "sent", "status", "said"),
    [
        ("gzip", lambda data: data, 400, "no complete gzip"),
        ("deflate", lambda data: data, 400, "no complete deflate"),
        ("gzip", lambda data: gzip.compress(data)[:-9], 400, "no complete gzip"),
        ("gzip", lambda data: gzip.compress(data) + b"xx", 400, "no complete gzip"),
        ("deflate", lambda data: zlib.compress(data)[:-5], 400, "no complete deflate"),
        ("gzip", lambda data: b"", 400, "no complete gzip"),
        ("gzip", lambda data: gzip.compress(bytes(1 << 24)), 413, "--max-mb"),
        ("br", lambda data: data, 415, '"br" is not read; it reads gzip, deflate'),
        ("zstd", lambda data: data, 415, '"zstd" is not read'),
        ("nonsense", lambda data: data, 415, '"nonsense" is not read'),
        ("gzip, nonsense", gzip.compress, 415, '"nonsense" is not read'),
        ("identity", lambda data: data, 200, ""),
        ("GZIP", gzip.compress, 200, ""),
        ("x-gzip", lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:]), 200, ""),
        ("deflate", lambda data: zlib.compress(data)[2:-4], 200, ""),
        ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data)), 200, ""),
    ],
)
def test_a_body_is_what_its_encoding_says(
    encoding: str,
    sent: Callable[[bytes], bytes],
    status: int,
    said: str,
    server: Running,
    want: list[np.ndarray],
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = sent(json.dumps(body()).encode())
    found, answer = call(server.place, "POST", "/v2/models/net/infer", data, Content_Encoding=encoding)
    assert found == status, answer
    if status == 200:
        assert answer["outputs"][0]["data"] == want[0].reshape(-1).tolist()
    else:
        assert said in answer["error"]
    assert not caplog.records, "a client's mistake is no fault of the server"


def test_an_encoding_that_is_not_read_is_answered_with_those_that_are(server: Running) -> None:
    connection = http.client.HTTPConnection(server.place, timeout=20)
    connection.request("POST", "/v2/models/net/infer", b"{}", {"Content-Encoding": "br"})
    answer = connection.getresponse()
    assert answer.status == 415 and answer.getheader("Accept-Encoding") == "gzip, deflate"
    connection.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", ["1e300", "-1e39", "1" + "0" * 400])
def test_a_number_beyond_its_type_is_a_mistake(number: str, server: Running) -> None:
    text = json.dumps(body(data=["N", *([0.0] * 127)])).replace('"N"', number)
    status, said = call(server.place, "POST", "/v2/models/net/infer", text)
    assert status == 400 and said["error"] == 'the input "x": a number is outside of FP32'


def test_clients_that_hang_up_are_no_news(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """In the head, in the body, before and in the answer, between requests of one connection."""
    good = json.dumps(body()).encode()
    head = POST + f"Content-Length: {len(good)}\r\n\r\n".encode()
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"
    packed = POST + b"Content-Encoding: gzip\r\nContent-Length: 90\r\n\r\n" + gzip.compress(good)[:50]
    host, port = server.place.split(":")
    for sent in (b"", head[:20], head, head + good[:60], head + good, (head + good) * 5, chunked, packed):
        for reset in (False, True):
            with socket.create_connection((host, int(port)), timeout=5) as raw:
                raw.sendall(sent)
                if reset:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(3):
        assert call(server.place, "POST", "/v2/models/net/infer", good)[0] == 200
    assert not caplog.records, caplog.text


def test_statistics_count_what_was_computed() -> None:
    with running(Served("net", Runner(split(), batch=4, linger=0.05)), Served("b", Runner(split()))) as one:
        server = client.InferenceServerClient(one.place, concurrency=4)
        waiting = [server.async_infer("net", [asked(sample["x"])]) for sample in SAMPLES[:4]]
        for request in waiting:
            request.get_result()
        with pytest.raises(InferenceServerException):
            server.infer("net", [asked(np.zeros((4, 31), np.float32))])
        (found,) = server.get_inference_statistics("net")["model_stats"]
        assert found == server.get_inference_statistics("net", "1")["model_stats"][0]
        assert (found["name"], found["version"], found["inference_count"]) == ("net", "1", 4)
        assert abs(found["last_inference"] / 1e3 - time.time()) < 600
        kinds = found["inference_stats"]
        assert kinds["success"]["count"] == 4 and kinds["fail"]["count"] == 1
        assert all(kinds[name]["ns"] > 0 for name in ("success", "fail", "queue", "compute_infer"))
        assert kinds["queue"]["count"] == sum(
            row["batch_size"] * row["compute_infer"]["count"] for row in found["batch_stats"]
        )
        both = server.get_inference_statistics()["model_stats"]
        assert [row["name"] for row in both] == ["net", "b"] and both[1]["inference_count"] == 0
        with pytest.raises(InferenceServerException, match='no model "c"'):
            server.get_inference_statistics("c")


def test_the_repository_is_the_command_line(tmp_path: Path, server: Running) -> None:
    one = client.InferenceServerClient(server.place)
    listed = one.get_model_repository_index()
    assert listed == [
        {"name": name, "version": "1", "state": "READY", "reason": ""} for name in ("net", "sums")
    ]
    assert call(server.place, "POST", "/v2/repository/index", b'{"ready": true}') == (200, listed)
    one.load_model("net")
    for refused, said in (
        (lambda: one.load_model("net", config="{}"), "takes no parameters"),
        (lambda: one.load_model("none"), 'no model "none"'),
        (lambda: one.unload_model("net"), "until it stops"),
        (lambda: one.unload_model("none"), 'no model "none"'),
    ):
        with pytest.raises(InferenceServerException, match=said):
            refused()
    assert one.is_model_ready("net")
    path = tmp_path / "net.npu"
    split().save(path)
    with running(Served("net", Runner(path), file=path)) as other:
        again = client.InferenceServerClient(other.place)
        again.load_model("net")
        path.write_bytes(split(4.0).to_bytes())
        os.utime(path, ns=(1, 1))
        with pytest.raises(InferenceServerException, match="has changed since the server opened it"):
            again.load_model("net")


def test_configurations_say_what_requests_may_hold(server: Running) -> None:
    one = client.InferenceServerClient(server.place)
    net, sums = one.get_model_config("net"), one.get_model_config("sums", "1")
    assert net["max_batch_size"] == 0 and net["name"] == "net"
    assert net["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4, 32]}]
    assert sums["max_batch_size"] == 4 and sums["input"][0]["dims"] == [3]
    assert sums["output"][0] == {"name": "y", "data_type": "TYPE_FP32", "dims": [3]}
    extensions = one.get_server_metadata()["extensions"]
    assert {"statistics", "model_repository", "model_configuration"} <= {*extensions}


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


def answer(raw: socket.socket) -> bytes:
    raw.settimeout(20)
    found = b""
    while part := raw.recv(4096):
        found += part
    return found


def test_open_connections_are_answered_when_it_stops() -> None:
    """A connection without a request yet, one in the head, one in the body, one that was answered before."""
    text = json.dumps(ONES).encode()
    whole = POST.replace(b"/net/", b"/slow/") + f"Content-Length: {len(text)}\r\n\r\n".encode() + text
    sent = {"idle": 0, "head": 30, "body": len(whole) - 20, "kept": 0}
    with running(Served("slow", slow(0.01))) as one:
        host, port = one.place.split(":")
        open_ = {name: socket.create_connection((host, int(port))) for name in sent}
        ready = b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n"
        open_["kept"].sendall(ready)
        assert open_["kept"].recv(4096).startswith(b"HTTP/1.1 200")
        for name, raw in open_.items():
            raw.sendall(whole[: sent[name]])
        time.sleep(0.1)
        one.end()
        time.sleep(0.1)
        for name, raw in open_.items():
            raw.sendall(whole[sent[name] :])
        for name, raw in open_.items():
            found = answer(raw)
            assert found.startswith(b"HTTP/1.1 200") and b"Connection: close" in found, (name, found)
            assert b"4.0, 4.0, 4.0" in found, name
            raw.close()


def test_what_is_not_ready_in_time_is_answered_with_503() -> None:
    with running(Served("slow", slow(1.5)), stop_seconds=0.2) as one:
        host, port = one.place.split(":")
        text = json.dumps(ONES).encode()
        head = POST.replace(b"/net/", b"/slow/") + f"Content-Length: {len(text)}\r\n\r\n".encode()
        begun, stuck = (socket.create_connection((host, int(port))) for _ in range(2))
        begun.sendall(head + text)
        stuck.sendall(head + text[:9])
        time.sleep(0.1)
        one.end()
        for raw in (begun, stuck):
            found = answer(raw)
            assert found.startswith(b"HTTP/1.1 503") and b"the server stops" in found, found
            raw.close()


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
