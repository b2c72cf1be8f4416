"""Seals in the C runtime: with keys named, it opens what was sealed with one of them, and nothing else."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import Where
from npuflow.program.container import PROVENANCE, SEAL, Body, sections_of, written
from npuflow.program.packing.package import packed
from npuflow.program.seal import Seal, key_pair, matches, name_of, private_key, public_key, sealed
from npuflow.runner import raw
from tests.networks.harness import SMALL, build
from tests.networks.small import mixed
from tests.runtime.harness import COMPILERS, ROOT, CProgram, Options, RuntimeFault, codes_of

pytest.importorskip("cryptography", reason="the extra sign")
USAGE, UNSEALED, KEY, BROKEN = 1, 16, 17, 18
SHA512 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
ED25519 = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)


class Crypto(ctypes.Structure):
    """`npuflow_crypto`."""

    _fields_ = (("context", ctypes.c_void_p), ("sha512", SHA512), ("ed25519", ED25519))


def _sha512(_: int, body: int, size: int, digest: int) -> int:
    ctypes.memmove(digest, hashlib.sha512(ctypes.string_at(body, size)).digest(), 64)
    return 0


def _ed25519(_: int, key: int, signature: int, body: int, size: int) -> int:
    seal = Seal(ctypes.string_at(key, 32), ctypes.string_at(signature, 64))
    return 0 if matches(seal, ctypes.string_at(body, size)) else BROKEN


CRYPTO = Crypto(None, SHA512(_sha512), ED25519(_ed25519))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        for path, body in zip((folder / name, folder / f"{name}.pub"), key_pair(), strict=True):
            path.write_bytes(body)
    return folder


@pytest.fixture(scope="module")
def plain() -> bytes:
    return build(mixed(SMALL.numerics)[0], SMALL).to_bytes()


def sections(file: bytes) -> tuple[str, list[tuple[str, Body]]]:
    fingerprint, parts = sections_of(memoryview(file), Where(), True)
    return fingerprint, [*parts.items()]


def seal(file: bytes, pairs: Path, name: str = "own") -> bytes:
    fingerprint, parts = sections(file)
    stated: list[tuple[str, Body]] = [one for one in parts if one[0] != PROVENANCE]
    stated.append((PROVENANCE, b"{}"))
    return written(fingerprint, sealed(fingerprint, stated, private_key(pairs / name)))


def keyed(pairs: Path, names: Sequence[str], crypto: Crypto | None = CRYPTO, **more: object) -> Options:
    """Options that name public keys."""
    keys = b"".join(public_key(pairs / f"{name}.pub") for name in names)
    options = Options(**more)
    options.keys = ctypes.cast(ctypes.create_string_buffer(keys), ctypes.c_void_p)
    options.key_count = len(names)
    options.crypto = None if crypto is None else ctypes.addressof(crypto)
    return options


def status(runtime: ctypes.CDLL, file: bytes, options: Options) -> int:
    """0 if it opens."""
    try:
        CProgram(runtime, file, options=options).close()
    except RuntimeFault as fault:
        return fault.status
    return 0


def test_a_file_opens_with_one_of_its_keys_alone(runtime: ctypes.CDLL, pairs: Path, plain: bytes) -> None:
    own = seal(plain, pairs)
    assert status(runtime, own, keyed(pairs, ["own"])) == 0
    assert status(runtime, own, keyed(pairs, ["other", "own"])) == 0
    assert status(runtime, own, keyed(pairs, ["other"])) == KEY
    assert status(runtime, plain, keyed(pairs, ["own"])) == UNSEALED
    assert status(runtime, own, Options()) == status(runtime, plain, Options()) == 0


def test_a_sealed_file_computes_the_same(runtime: ctypes.CDLL, pairs: Path, plain: bytes) -> None:
    slots = raw.inputs(build(mixed(SMALL.numerics)[0], SMALL))
    codes = {one.name: codes_of(one, np.random.default_rng(1), 1)[0] for one in slots}
    found = []
    for file, options in ((plain, Options()), (seal(plain, pairs), keyed(pairs, ["own"]))):
        with CProgram(runtime, file, options=options) as one:
            found.append({name: array.tobytes() for name, array in one.run(codes).items()})
    assert found[0] == found[1] and any(map(any, found[0].values()))


def test_a_file_of_several_networks_is_sealed_as_one(
    runtime: ctypes.CDLL, pairs: Path, plain: bytes
) -> None:
    one = build(mixed(SMALL.numerics)[0], SMALL)
    file = seal(packed({"a": one, "b": one}).to_bytes(), pairs)
    options = keyed(pairs, ["own"], network=b"b")
    assert status(runtime, file, options) == 0
    assert status(runtime, seal(file, pairs, "other"), keyed(pairs, ["own"], network=b"b")) == KEY


def test_whatever_is_changed_behind_a_seal_is_found(
    runtime: ctypes.CDLL, pairs: Path, plain: bytes
) -> None:
    """All other digests are computed anew, as someone would who changes a file on purpose."""
    fingerprint, parts = sections(seal(plain, pairs))
    options = keyed(pairs, ["own"])

    def opened(parts: list[tuple[str, Body]], fingerprint: str = fingerprint) -> int:
        return status(runtime, written(fingerprint, parts), options)

    assert opened(parts) == 0
    for i, (name, body) in enumerate(parts):
        if name == SEAL:
            continue
        changed = bytearray(body)
        changed[-1] ^= 1
        assert opened([*parts[:i], (name, bytes(changed)), *parts[i + 1 :]]) == BROKEN, name
        assert opened([*parts[:i], *parts[i + 1 :]]) in (BROKEN, 6), name    # 6: no program without it
    assert opened(parts, fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")) == BROKEN
    assert opened([*parts[:-2], parts[-1], parts[-2]]) == BROKEN
    assert opened([parts[1], parts[0], *parts[2:]]) == BROKEN
    whole = bytes(parts[-1][1])
    for at in range(len(whole)):
        body = bytearray(whole)
        body[at] ^= 1
        wanted = KEY if 8 <= at < 40 else BROKEN
        assert opened([*parts[:-1], (SEAL, bytes(body))]) == wanted, at
    assert opened([*parts[:-1], (SEAL, whole[:-1])]) == opened([*parts[:-1], (SEAL, b"")]) == BROKEN


def test_keys_without_what_checks_them_are_refused(
    runtime: ctypes.CDLL, pairs: Path, plain: bytes
) -> None:
    """A key that is not looked at would be worse than none."""
    own = seal(plain, pairs)
    assert status(runtime, own, keyed(pairs, ["own"], None)) == USAGE
    half = Crypto(None, SHA512(_sha512), ED25519())
    assert status(runtime, own, keyed(pairs, ["own"], half)) == USAGE
    failing = Crypto(None, SHA512(lambda *_: 1), ED25519(_ed25519))
    assert status(runtime, own, keyed(pairs, ["own"], failing)) == BROKEN


HEADER = subprocess.run(
    [*COMPILERS[:1], "-E", "-"], input="#include <openssl/evp.h>", capture_output=True, text=True, check=False
).returncode if COMPILERS else 1


@pytest.mark.skipif(bool(HEADER) or not shutil.which("make"), reason="no compiler, make or OpenSSL's headers")
@pytest.mark.slow
def test_the_example_checks_seals_with_openssl(pairs: Path, plain: bytes, tmp_path: Path) -> None:
    sources = tmp_path / "runtime"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns("build"))
    make = ["make", "-s", "-C", str(sources), f"CC={COMPILERS[0]}", "OPENSSL=1", "CFLAGS=-O1 -Werror"]
    subprocess.run(make, check=True)
    own = seal(plain, pairs)
    fingerprint, parts = sections(own)
    broken = written(fingerprint, [*parts[:-1], (SEAL, bytes(parts[-1][1])[:-1] + bytes([own[-1] ^ 1]))])
    files = {"own": own, "plain": plain, "broken": broken, "other": seal(plain, pairs, "other")}
    said = {}
    for name, body in files.items():
        (tmp_path / name).write_bytes(body)
        words = [sources / "build/run", "--key", name_of(public_key(pairs / "own.pub")), tmp_path / name]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
        said[name] = run.returncode, run.stderr.partition(": ")[2].partition(":")[0]
    assert said == {
        "own": (0, ""), "plain": (1, "a file that is not sealed"),
        "broken": (1, "a seal that does not match"), "other": (1, "sealed with another key"),
    }
