"""Signs .npu files with Ed25519, checks their signatures, and reads what a file says it was made of.

Section `seal`, the last of a sealed file, 104 bytes, little endian: version u32 (1), algorithm u32
(1: Ed25519), public key (32 bytes), signature (64 bytes). Signed is the text "npuflow seal 1\\n", then the
version of the container u32, the target's fingerprint (64 bytes, as in the header), the number of sections
before the seal u32, and of each of these, in the file's order: name (16 bytes), size u64, SHA-512 (64 bytes).
What else a file has, offsets and zeros, follows from these, and every reader checks it. SHA-512 is what
Ed25519 needs anyway.

Section `provenance`, before the seal: a JSON object, see `cli/_provenance.py`; it is signed like the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from npuflow.base.errors import ModelError, UsageError, Where
from npuflow.base.extras import needs
from npuflow.program.container import PROVENANCE, SEAL, VERSION, Body, sections_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Key = str | os.PathLike[str]
"""A public key: a file (PEM, or a line of OpenSSH), or the text that `name_of` gives."""
_SEAL = struct.Struct("<II32s64s")
_HEAD = struct.Struct("<I64sI")
_SECTION = struct.Struct("<16sQ64s")
_BEGIN = b"npuflow seal 1\n"
_NAMED = re.compile(r"ed25519:([0-9a-f]{64})")
_PAIR = "openssl genpkey -algorithm ed25519 and ssh-keygen -t ed25519 make such keys"


@dataclass(frozen=True)
class Seal:
    """A public key and its signature over all other sections."""

    key: bytes
    signature: bytes

    @classmethod
    def of(cls, body: Body, where: Where) -> Self:
        """From the section's bytes."""
        size, head = len(body), bytes(body[:8])
        if size != _SEAL.size or head != struct.pack("<II", 1, 1):
            raise ModelError(
                "the seal of the file is malformed", where=where, code="NF-PROGRAM-070",
                because=f"{size} bytes that begin with {head.hex()}: another version of npuflow wrote it",
                hint="seal the file again",
            )
        _, _, key, signature = _SEAL.unpack(body)
        return cls(key, signature)

    @property
    def section(self) -> bytes:
        return _SEAL.pack(1, 1, self.key, self.signature)


def signed_bytes(fingerprint: str, sections: Sequence[tuple[str, Body]]) -> bytes:
    """What a seal signs: names, sizes and digests of all sections before it."""
    text = _BEGIN + _HEAD.pack(VERSION, fingerprint.encode(), len(sections))
    for name, body in sections:
        text += _SECTION.pack(name.encode(), len(body), hashlib.sha512(body).digest())
    return text


def name_of(key: bytes) -> str:
    """A public key as text."""
    return f"ed25519:{key.hex()}"


def sealed(
    fingerprint: str, sections: Sequence[tuple[str, Body]], key: Ed25519PrivateKey
) -> list[tuple[str, Body]]:
    """The sections of a file with a seal behind them."""
    kept = [(name, body) for name, body in sections if name != SEAL]
    seal = Seal(key.public_key().public_bytes_raw(), key.sign(signed_bytes(fingerprint, kept)))
    return [*kept, (SEAL, seal.section)]


def seal_of(parts: Mapping[str, Body], where: Where) -> Seal | None:
    """The seal among a file's sections; None: it has none."""
    if SEAL not in parts:
        return None
    if [*parts][-1] != SEAL:
        raise ModelError(
            "the seal of the file is malformed", where=where, because="sections come after it",
            hint="seal the file again", code="NF-PROGRAM-070",
        )
    return Seal.of(parts[SEAL], where)


def provenance_of(parts: Mapping[str, Body], where: Where) -> dict[str, Any] | None:
    """What the file says it was made of; None: it says nothing."""
    if PROVENANCE not in parts:
        return None
    try:
        found = json.loads(bytes(parts[PROVENANCE]))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ModelError(
            "the provenance of the file is no JSON object", where=where, hint="seal the file again",
            code="NF-PROGRAM-074",
        )
    return found


def check_sealed(data: Body, keys: Iterable[Key], where: Where) -> Seal:
    """The seal of a file, by one of these public keys; a ModelError if there is none, or if it does not
    match the file's bytes."""
    trusted = [public_key(key) for key in keys]
    fingerprint, parts = sections_of(memoryview(data), where, True)
    seal = seal_of(parts, where)
    wanted = ", ".join(map(name_of, trusted))
    if seal is None:
        raise ModelError(
            "the file is not sealed", where=where, because=f"a seal of {wanted} is required",
            hint="npuflow seal FILE --key KEY", code="NF-PROGRAM-071",
        )
    if trusted and seal.key not in trusted:
        raise ModelError(
            "the file is sealed with another key", where=where,
            because=f"its key is {name_of(seal.key)}, required is {wanted}",
            hint="take a file of who has that key, or the key of who sealed this one",
            code="NF-PROGRAM-072",
        )
    others = [(name, body) for name, body in parts.items() if name != SEAL]
    if not matches(seal, signed_bytes(fingerprint, others)):
        raise ModelError(
            "the seal does not match the file", where=where,
            because="the file was changed after it was sealed, or its seal was",
            hint="take the file again from where it was sealed", code="NF-PROGRAM-073",
        )
    return seal


def matches(seal: Seal, text: bytes) -> bool:
    """Whether a signature is that of the text."""
    with _needed():
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(seal.key).verify(seal.signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(key: Key) -> bytes:
    """The 32 bytes of a public key, from a file or from its text."""
    named = _NAMED.fullmatch(str(key))
    if named is not None:
        return bytes.fromhex(named[1])
    with _needed():
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    text = _read(key)
    try:
        found = (s.load_ssh_public_key if text.startswith(b"ssh-") else s.load_pem_public_key)(text)
    except Exception as error:
        because = "it is a private key" if b"PRIVATE KEY" in text else str(error).partition(".")[0]
        raise _wrong(key, "public", because) from None
    if not isinstance(found, Ed25519PublicKey):
        raise _wrong(key, "public", f"it is a {type(found).__name__.lstrip('_')}")
    return found.public_bytes_raw()


def private_key(path: Key, password: bytes | None = None) -> Ed25519PrivateKey:
    """The private key of a PEM or OpenSSH file. A missing password is a UsageError (NF-USAGE-392)."""
    with _needed():
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    text = _read(path)
    load = s.load_ssh_private_key if b"OPENSSH PRIVATE" in text else s.load_pem_private_key
    try:
        found = _opened(load, text, password)
    except TypeError:
        raise UsageError(
            f'the key "{path}" needs a password', because="it is encrypted",
            hint="NPUFLOW_KEY_PASSWORD in the environment", code="NF-USAGE-392",
        ) from None
    except Exception as error:
        because = "it is a public key" if b"PUBLIC KEY" in text else str(error).partition(".")[0]
        raise _wrong(path, "private", because) from None
    if not isinstance(found, Ed25519PrivateKey):
        raise _wrong(path, "private", f"it is a {type(found).__name__.lstrip('_')}")
    return found


def _opened(load: Callable[[bytes, bytes | None], Any], text: bytes, password: bytes | None) -> Any:
    """A private key; a password that it does not have is left out."""
    try:
        return load(text, password)
    except TypeError:
        if password is None:
            raise
        return load(text, None)


def key_pair() -> tuple[bytes, bytes]:
    """A new private key and its public key, as PEM."""
    with _needed():
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    public = made.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    return private, public


def _read(path: Key) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f'cannot read the key "{path}": {error.strerror}', code="NF-USAGE-390",
            hint='a file, or "ed25519:" and 64 hexadecimal digits of a public key',
        ) from None


def _wrong(path: Key, kind: str, because: str) -> UsageError:
    return UsageError(
        f'"{path}" holds no {kind} key of Ed25519', because=because, hint=_PAIR, code="NF-USAGE-391",
    )


def _needed() -> Any:
    return needs(
        "seals need the package cryptography", kind=UsageError, hint="pip install 'npuflow[sign]'",
        code="NF-RUN-130",
    )
