"""What the server answers beside inference: encodings, hang-ups, other calls of Triton, its end."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from npuflow.apps.serve.served import Served
from npuflow.runner.runner import Runner
from tests.runner.programs import split
from tests.serve.served import Running, running
from tests.serve.test_serve import ONES, POST, SAMPLES, asked, body, call, slow
from tests.serve.test_serve import server as server
from tests.serve.test_serve import want as want


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
