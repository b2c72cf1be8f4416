"""Seals: whatever is changed behind one is found, another key is refused, and what is signed follows from the
bytes of a file alone."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import npuflow
from npuflow.base.errors import ModelError, NpuflowError, UsageError, Where
from npuflow.program.container import Body, Program, file_bytes, sections_of, written
from npuflow.program.packing.package import Package, load_network, packed
from npuflow.program.seal import (
    check_sealed,
    key_pair,
    name_of,
    private_key,
    public_key,
    sealed,
    signed_bytes,
)
from npuflow.runner.opening import trusted
from tests.runner.programs import feeds, split

pytest.importorskip("cryptography", reason="the extra sign")
Parts = list[tuple[str, Body]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pairs of keys: own and other."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        private, public = key_pair()
        (folder / name).write_bytes(private)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@cache
def program() -> Program:
    return split()


def seal(data: bytes, keys: Path, name: str = "own", **more: bytes) -> bytes:
    """The file with a seal, and with more sections under it."""
    fingerprint, parts = sections_of(memoryview(data), Where(), True)
    sections: Parts = [*parts.items(), *more.items()]
    return written(fingerprint, sealed(fingerprint, sections, private_key(keys / name)))


def refused(data: bytes, key: Path | str, code: str) -> str:
    with pytest.raises(NpuflowError) as error:
        check_sealed(data, [key], Where(file="x.npu"))
    assert error.value.code == code and error.value.hint
    return str(error.value)


def test_a_sealed_file_is_the_same_program_to_everyone(keys: Path) -> None:
    plain = program().to_bytes()
    data = seal(plain, keys, provenance=b'{"model": "x3:1"}')
    assert Program.from_bytes(data).to_bytes() == plain != data
    found = check_sealed(data, [keys / "other.pub", keys / "own.pub"], Where())
    assert name_of(found.key) == name_of(public_key(keys / "own.pub"))
    assert check_sealed(data, [name_of(found.key)], Where()) == found
    assert seal(data, keys) == data, "sealed again with the same key: the same bytes"
    assert len(seal(data, keys, "other")) == len(data)


CHANGES: dict[str, Callable[[Parts], Parts]] = {
    "a byte of the commands": lambda parts: changed(parts, "core0"),
    "a byte of the constants": lambda parts: changed(parts, "const"),
    "the provenance": lambda parts: changed(parts, "provenance"),
    "a longer section": lambda parts: [(n, bytes(b) + b"\0" if n == "const" else b) for n, b in parts],
    "a section less": lambda parts: [(n, b) for n, b in parts if n != "provenance"],
    "a section more": lambda parts: [("taps2", b"x"), *parts],
    "two that change places": lambda parts: [parts[1], parts[0], *parts[2:]],
    "another name": lambda parts: [("Graph" if n == "graph" else n, b) for n, b in parts],
}


def changed(parts: Parts, name: str) -> Parts:
    return [(n, bytes([bytes(b)[0] ^ 1]) + bytes(b)[1:] if n == name else b) for n, b in parts]


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_with_right_digests_is_found(keys: Path, what: str) -> None:
    """Whoever changes the file computes its digests anew."""
    data = seal(program().to_bytes(), keys, provenance=b'{"model": "x3:1"}')
    fingerprint, parts = sections_of(memoryview(data), Where(), True)
    other = CHANGES[what]([*parts.items()])
    assert [n for n, _ in other][-1] == "seal" and other != [*parts.items()]
    assert "was changed" in refused(written(fingerprint, other), keys / "own.pub", "NF-PROGRAM-073")


def test_another_target_signature_and_damage_are_found(keys: Path) -> None:
    data = seal(program().to_bytes(), keys)
    fingerprint, parts = sections_of(memoryview(data), Where(), True)
    refused(written("x3:0", [*parts.items()]), keys / "own.pub", "NF-PROGRAM-073")
    others, body = [(n, b) for n, b in parts.items() if n != "seal"], bytes(parts["seal"])
    wrong = written(fingerprint, [*others, ("seal", body[:-1] + bytes([body[-1] ^ 1]))])
    refused(wrong, keys / "own.pub", "NF-PROGRAM-073")
    refused(data[:-1] + bytes([data[-1] ^ 1]), keys / "own.pub", "NF-PROGRAM-009")
    for bad in (b"", bytes(104), b"\2" + body[1:], body + b"x"):
        refused(written(fingerprint, [*others, ("seal", bad)]), keys / "own.pub", "NF-PROGRAM-070")
    refused(written(fingerprint, [*parts.items(), ("more", b"")]), keys / "own.pub", "NF-PROGRAM-070")


def test_no_seal_and_another_key_are_one_clear_error_each(keys: Path) -> None:
    plain = program().to_bytes()
    said = refused(plain, keys / "own.pub", "NF-PROGRAM-071")
    assert "x.npu" in said and name_of(public_key(keys / "own.pub")) in said
    said = refused(seal(plain, keys, "other"), keys / "own.pub", "NF-PROGRAM-072")
    assert all(name_of(public_key(keys / name)) in said for name in ("own.pub", "other.pub"))


def independently(data: bytes) -> tuple[bytes, bytes, bytes]:
    """What is signed, the key and the signature, by the bytes of the file alone, as a loader in C reads
    them."""
    version, count = struct.unpack_from("<II", data, 8)
    text, at = b"npuflow seal 1\n" + struct.pack("<I", version) + data[16:80], 80
    text += struct.pack("<I", count - 1)
    for _ in range(count - 1):
        offset, size = struct.unpack_from("<QQ", data, at + 16)
        digest = hashlib.sha512(data[offset : offset + size]).digest()
        text += data[at : at + 16] + data[at + 24 : at + 32] + digest
        at += 48
    assert data[at : at + 16] == b"seal".ljust(16, b"\0")
    offset, size = struct.unpack_from("<QQ", data, at + 16)
    last = data[offset : offset + size]
    assert size == 104 and last[:8] == struct.pack("<II", 1, 1)
    return text, last[8:40], last[40:]


def test_what_is_signed_follows_from_the_bytes_alone_and_openssl_agrees(keys: Path, tmp_path: Path) -> None:
    data = seal(program().to_bytes(), keys, provenance=b"{}")
    fingerprint, parts = sections_of(memoryview(data), Where(), True)
    text, key, signature = independently(data)
    assert text == signed_bytes(fingerprint, [(n, b) for n, b in parts.items() if n != "seal"])
    assert key == public_key(keys / "own.pub")
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "signature").write_bytes(signature)
    words = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(keys / "own.pub"), "-rawin"]
    words += ["-in", str(tmp_path / "text"), "-sigfile", str(tmp_path / "signature")]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    (tmp_path / "text").write_bytes(text + b"x")
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0


def test_keys_of_openssh_and_with_passwords(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    made = Ed25519PrivateKey.generate()
    public = made.public_key()
    raw = public.public_bytes_raw()
    locked = s.BestAvailableEncryption(b"word")
    (tmp_path / "pem").write_bytes(made.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, locked))
    (tmp_path / "ssh").write_bytes(
        made.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
    )
    (tmp_path / "ssh.pub").write_bytes(public.public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH))
    assert public_key(tmp_path / "ssh.pub") == raw
    assert private_key(tmp_path / "ssh").public_key() == public
    assert private_key(tmp_path / "ssh", b"not needed").public_key() == public
    assert private_key(tmp_path / "pem", b"word").public_key().public_bytes_raw() == raw
    with pytest.raises(UsageError, match="needs a password") as error:
        private_key(tmp_path / "pem")
    assert error.value.code == "NF-USAGE-392"
    curve = generate_private_key(SECP256R1())
    (tmp_path / "curve").write_bytes(
        curve.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    )
    (tmp_path / "text").write_text("no key")
    for name, read in (
        ("curve", private_key), ("text", private_key), ("text", public_key), ("ssh", public_key),
        ("ssh.pub", private_key), ("pem", lambda path: private_key(path, b"other")),
    ):
        with pytest.raises(UsageError) as error:
            read(tmp_path / name)
        assert error.value.code == "NF-USAGE-391" and error.value.because, name
    with pytest.raises(UsageError) as error:
        public_key("ed25519:12")
    assert error.value.code == "NF-USAGE-390"


def test_a_session_takes_sealed_programs_only(keys: Path, tmp_path: Path) -> None:
    from npuflow import ort

    path, plain = tmp_path / "own.npu", program().to_bytes()
    path.write_bytes(seal(plain, keys))

    def opened(source: Path | bytes, *names: str) -> ort.InferenceSession:
        required = ",".join(str(keys / f"{name}.pub") for name in names)
        return ort.InferenceSession(source, providers=[(ort.PROVIDER, {"require_key": required})])

    found = opened(path, "other", "own")
    want = ort.InferenceSession(plain).run(None, feeds(1)[0])
    for mine, theirs in zip(found.run(None, feeds(1)[0]), want, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert opened(path.read_bytes(), "own").program is not None
    for source, name in ((path, "other"), (plain, "own")):
        with pytest.raises(ModelError, match="sealed"):
            opened(source, name)
    with pytest.raises(UsageError, match="a seal is required"):
        opened(b"an ONNX model", "own")
    with pytest.raises(ValueError, match="when a session opens"):
        found.set_providers([(ort.PROVIDER, {"require_key": "x"})])


def test_a_runner_takes_sealed_programs_only(keys: Path, tmp_path: Path) -> None:
    own, path = keys / "own.pub", tmp_path / "a.npu"
    path.write_bytes(seal(program().to_bytes(), keys))
    want = npuflow.Runner(program()).run(sample())
    for source in (path, str(path), path.read_bytes()):
        runner = npuflow.Runner(source, require_key=own)
        for one in (runner, pickle.loads(pickle.dumps(runner))):
            found = one.run(sample())
            assert all((found[name] == array).all() for name, array in want.items())
    path.write_bytes(program().to_bytes())
    with pytest.raises(ModelError) as refusal:
        npuflow.Runner(path, require_key=[own, keys / "other.pub"])
    assert refusal.value.code == "NF-PROGRAM-071" and refusal.value.where.file == str(path)
    (tmp_path / "a.onnx").write_bytes(b"no program")
    for source in (program(), tmp_path / "a.onnx", b"no program"):
        with pytest.raises(UsageError) as error:
            npuflow.Runner(source, require_key=own)
        assert error.value.code == "NF-RUN-132"
    with pytest.raises(UsageError, match="no key"):
        npuflow.Runner(path, require_key=[])


def sample() -> dict[str, np.ndarray]:
    return feeds(1)[0]


def test_a_file_of_several_programs_has_one_seal(keys: Path, tmp_path: Path) -> None:
    plain = packed({"a": program(), "b": program()}).to_bytes()
    path, own = tmp_path / "two.npu", keys / "own.pub"
    path.write_bytes(seal(plain, keys))
    assert Package.from_bytes(path.read_bytes()).to_bytes() == plain
    assert isinstance(trusted(path, own), Package)
    one = trusted(f"{path}#b", own)
    assert isinstance(one, Program) and one.to_bytes() == load_network(f"{path}#b").to_bytes()
    path.write_bytes(plain)
    for source in (path, f"{path}#b"):
        with pytest.raises(ModelError) as error:
            trusted(source, own)
        assert error.value.code == "NF-PROGRAM-071"
    assert file_bytes(path) == plain
