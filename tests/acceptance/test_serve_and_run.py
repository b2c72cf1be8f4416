"""A program after its build: run from Python and the command line, served to a public client, looked at."""

from __future__ import annotations

import gzip
import http.client
import json
import signal
import socket
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.conftest import Start
from tests.acceptance.environments import Environment
from tests.acceptance.networks import samples, small_network
from tests.view.browser import CHROMIUM, browser


@pytest.fixture(scope="module")
def built(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recipe with its cache and its program, `out/net/model.npu`."""
    folder = tmp_path_factory.mktemp("built")
    recipe = small_network(folder)
    installed.npuflow("build", recipe, "--cache", folder / "cache", "--out", folder / "out", cwd=folder)
    return folder


def program(built: Path) -> Path:
    return built / "out" / "net" / "model.npu"


FORK = """
import json, multiprocessing, sys
import numpy as np
import npuflow

runner = npuflow.Runner(sys.argv[1])
sample = {"x": np.load(sys.argv[2])["x"][:1]}
first = runner.submit(sample, timeout=60).result(60)["y"]

def child(end):
    late = runner.submit(sample, timeout=60).result(60)["y"]
    end.send(late.tolist())

here, there = multiprocessing.Pipe()
one = multiprocessing.get_context("fork").Process(target=child, args=(there,))
one.start()
found = here.recv() if here.poll(60) else None
one.kill()
none = runner.run_batch({"x": np.zeros((0, 3, 8, 8), np.float32)})["y"].shape
print(json.dumps([first.tolist() == found, list(none)]))
"""

NAN = """
import sys, warnings
import numpy as np
import npuflow

bad = np.full((1, 3, 8, 8), np.nan, np.float32)
runner = npuflow.Runner(sys.argv[1])
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    runner.run({"x": bad}), runner.run({"x": bad})
print(len(told), told[0].category.__name__)
try:
    npuflow.Runner(sys.argv[1], nan="refuse").run({"x": bad})
except npuflow.base.errors.DataError as error:
    print(error.code)
"""


@pytest.mark.promise("runner-forked")
def test_a_runner_in_a_forked_process(installed: Environment, built: Path) -> None:
    done = installed.python(FORK, str(program(built)), str(built / "calibration.npz"), cwd=built)
    assert json.loads(done.stdout) == [True, [0, 5]], done.stdout + done.stderr


@pytest.mark.promise("runner-nan")
@pytest.mark.promise("run-npz-names")
def test_inputs_that_are_not_right(installed: Environment, built: Path, tmp_path: Path) -> None:
    assert installed.python(NAN, str(program(built))).stdout.split() == ["1", "RuntimeWarning", "NF-DATA-230"]
    np.savez(tmp_path / "wrong.npz", picture=samples(1))
    np.savez(tmp_path / "right.npz", x=samples(2), label=np.zeros(2))
    np.savez(tmp_path / "unnamed.npz", samples(2))
    for name, code in (("wrong", 2), ("right", 0), ("unnamed", 0)):
        words = ("run", program(built), f"{name}.npz", "-o", f"{name}-out.npz")
        done = installed.npuflow(*words, cwd=tmp_path, check=False)
        assert done.returncode == code, done.stderr
        assert (tmp_path / f"{name}-out.npz").exists() == (code == 0)
        if code:
            assert "NF-DATA-231" in done.stderr and '"x"' in done.stderr and "Traceback" not in done.stderr


READER = """
import numpy as np

def read(path):
    return np.load(path)
"""


@pytest.mark.promise("data-reader-left-out")
def test_a_file_that_a_reader_cannot_read_is_left_out(installed: Environment, tmp_path: Path) -> None:
    recipe = small_network(tmp_path)
    (tmp_path / "in").mkdir()
    for i, one in enumerate(samples(4)):
        np.save(tmp_path / "in" / f"{i}.npy", one)
    (tmp_path / "in" / "bad.npy").write_bytes(b"nothing of the kind")
    (tmp_path / "own.py").write_text(READER)
    sets = ("--set", 'data.source="in"', "--set", 'data.reader="python:own.py:read"')
    words = ("build", recipe, *sets, "--until", "input_check", "--cache", tmp_path / "cache")
    done = installed.npuflow(*words, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert "1 of 5 samples are left out: bad.npy" in said and "Traceback" not in said


def post(place: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(place, timeout=30)
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v2/models/net/infer", body, fields)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer.status, found


def hang_up(place: str, data: bytes, reset: bool) -> None:
    host, port = place.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(data)
        if reset:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.promise("serve-encodings")
@pytest.mark.promise("serve-stop")
def test_a_server_under_a_public_client(installed: Environment, built: Path, start: Start) -> None:
    triton = pytest.importorskip("tritonclient.http")
    server = start(installed, "npuflow", "serve", f"net={program(built)}", "--port", 0, cwd=built)
    place = server.until("/v2/models/net").split("/")[2]
    client = triton.InferenceServerClient(place)
    given = triton.InferInput("x", [2, 3, 8, 8], "FP32")
    given.set_data_from_numpy(samples(2))
    want = client.infer("net", [given]).as_numpy("y")
    for packed in ("gzip", "deflate"):
        again = client.infer("net", [given], request_compression_algorithm=packed).as_numpy("y")
        np.testing.assert_array_equal(again, want)
    (found,) = client.get_inference_statistics("net")["model_stats"]
    assert found["inference_stats"]["success"]["count"] == 3 and found["inference_count"] == 6
    assert client.get_model_repository_index()[0]["state"] == "READY"
    assert client.get_model_config("net")["input"][0]["dims"] == [3, 8, 8]
    client.load_model("net")
    with pytest.raises(triton.InferenceServerException, match="until it stops"):
        client.unload_model("net")

    text = json.dumps(request(samples(1))).encode()
    head = f"POST /v2/models/net/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(text)}\r\n\r\n".encode()
    answers = {name: post(place, text, Content_Encoding=name)[0] for name in ("gzip", "br", "identity")}
    assert answers == {"gzip": 400, "br": 415, "identity": 200}
    assert post(place, gzip.compress(text)[:-9], Content_Encoding="gzip")[0] == 400
    assert post(place, text.replace(b"[1, 3, 8, 8]", b"[1, 3, 8, 9]"))[0] == 400
    for data in (head[:30], head + text[:40], head + text, (head + text) * 3):
        for reset in (False, True):
            hang_up(place, data, reset)
    assert post(place, text)[0] == 200

    host, port = place.split(":")
    begun = {"nothing": 0, "head": 30, "body": len(head) + 40}
    raw = {name: socket.create_connection((host, int(port))) for name in begun}
    for name, count in begun.items():
        raw[name].sendall((head + text)[:count])
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    for name, count in begun.items():
        raw[name].sendall((head + text)[count:])
    for name, one in raw.items():
        assert whole(one).startswith(b"HTTP/1.1 200"), name
        one.close()
    assert server.wait(30) == 0
    assert "Traceback" not in server.text and "Warning" not in server.text, server.text


def request(array: np.ndarray) -> dict[str, Any]:
    data = array.reshape(-1).tolist()
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": list(array.shape), "data": data}]}


def whole(raw: socket.socket) -> bytes:
    raw.settimeout(30)
    found = b""
    while part := raw.recv(4096):
        found += part
    return found


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_the_page_of_a_build_in_a_browser(
    installed: Environment, built: Path, start: Start, tmp_path: Path
) -> None:
    server = start(installed, "npuflow", "view", built / "cache", "--port", 0, cwd=built)
    address = "http://" + server.until("http://").split("//")[1].strip().rstrip("/") + "/"
    with browser(tmp_path / "profile") as one:
        one.send("Page.enable")
        one.send("Page.navigate", url=address)
        one.until("document.querySelector('#builds button')", 60)
        build = one.value("document.querySelector('#builds button').dataset.id")
        for name in ("y", "x", "b"):
            one.value(f"location.hash = '{build}/tensor/{name}'")
            one.until(f"document.querySelector('#facts h3')?.textContent == '{name}'", 60)
            one.until("document.querySelector('#histogram svg')", 60)
        one.value(f"location.hash = '{build}/network'")
        one.until("document.querySelectorAll('#layers g').length >= 3", 60)
    server.kill(signal.SIGTERM)
    server.wait(30)
    assert "Traceback" not in server.text, server.text
