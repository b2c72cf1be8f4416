"""Bodies of requests, out of their Content-Encoding: no more bytes than the server allows."""

from __future__ import annotations

import zlib

from npuflow.serve.tensors import ProtocolError

ENCODINGS = ("gzip", "deflate")
_GZIP = 16 + zlib.MAX_WBITS
_FORMS = {"gzip": (_GZIP,), "x-gzip": (_GZIP,), "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}


class EncodingError(ProtocolError):
    """A Content-Encoding that the server does not read."""

    def __init__(self, name: str) -> None:
        known = ", ".join(ENCODINGS)
        super().__init__(f'the Content-Encoding "{name}" is not read; it reads {known} and identity', 415)


def encodings_of(header: str) -> tuple[str, ...]:
    """The encodings that a header states, the one to undo first in front; EncodingError for others."""
    names = [name.strip().lower() for name in header.split(",")]
    found = [name for name in reversed(names) if name not in ("", "identity")]
    for name in found:
        if name not in _FORMS:
            raise EncodingError(name)
    return tuple(found)


def plain(body: bytes, encodings: tuple[str, ...], most: int) -> bytes:
    """The body with its encodings undone. ProtocolError where it is not what they say (400), or would have
    more than `most` bytes (413)."""
    for name in encodings:
        body = _undone(body, name, most)
    return body


def _undone(body: bytes, name: str, most: int) -> bytes:
    for form in _FORMS[name]:
        try:
            return _inflated(body, form, most)
        except zlib.error:
            continue
    raise ProtocolError(f"the body is no complete {name}, which its Content-Encoding states")


def _inflated(body: bytes, form: int, most: int) -> bytes:
    """All members, one behind the other; zlib.error where one is damaged, cut off, or followed by others'
    bytes."""
    parts, left = [], most
    while True:
        member = zlib.decompressobj(form)
        parts.append(member.decompress(body, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise ProtocolError(
                f"the request is too large (npuflow serve --max-mb): more than {most} bytes when decoded", 413
            )
        if not member.eof:
            raise zlib.error("cut off")
        body = member.unused_data
        if not body:
            return b"".join(parts)
        if form != _GZIP:
            raise zlib.error("bytes behind the end")
