"""Compression of HTTP bodies: gzip and deflate."""

from __future__ import annotations

import zlib

from moonfed.errors import InvalidInput, ResourceExhausted

_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # HTTP's deflate is zlib's format
ENCODINGS = tuple(_WINDOWS)
MAX_RATIO = 100  # of the decompressed size to the size sent, beyond FREE_BYTES
FREE_BYTES = 1 << 20


def decompress(body: bytes | bytearray, encoding: str, limit: int) -> bytes | bytearray:
    """Decompress a request's body; raise ResourceExhausted if the result exceeds `limit` bytes or MAX_RATIO."""
    if encoding == "identity":
        return body
    limit = min(limit, max(FREE_BYTES, MAX_RATIO * len(body)))
    reader = zlib.decompressobj(_WINDOWS[encoding])
    try:
        content = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is not {encoding}: {error}") from error
    if len(content) > limit:
        raise ResourceExhausted(
            f"the decompressed body exceeds {limit} bytes, the maximum accepted for {len(body)} compressed ones"
        )
    if not reader.eof:
        raise InvalidInput(f"the body is not {encoding}: its end is missing")
    return content


def compress(body: bytes, encoding: str) -> bytes:
    """Compress a body with gzip or deflate."""
    writer = zlib.compressobj(level=1, wbits=_WINDOWS[encoding])  # speed matters more than size
    return writer.compress(body) + writer.flush()


def accepted_encoding(header: str) -> str:
    """Return the encoding that an Accept-Encoding header prefers; "" for none."""
    best, weight = "", 0.0
    for part in header.split(","):
        name, _, quality = part.partition(";")
        value = _quality(quality)
        if name.strip() in ("identity", *ENCODINGS) and value > weight:
            best, weight = name.strip(), value
    return "" if best == "identity" else best


def _quality(text: str) -> float:
    if not text.strip():
        return 1.0
    try:
        return float(text.strip().removeprefix("q="))
    except ValueError:
        return 0.0
