from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.serving.http import compression


@given(st.binary(max_size=300))
def test_compression_matches_the_standard_library(body: bytes) -> None:
    assert compression.decompress(gzip.compress(body), "gzip", 300) == body
    assert compression.decompress(zlib.compress(body), "deflate", 300) == body
    assert compression.decompress(body, "identity", 300) == body
    assert gzip.decompress(compression.compress(body, "gzip")) == body
    assert zlib.decompress(compression.compress(body, "deflate")) == body


def test_a_decompression_bomb_is_rejected() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(ResourceExhausted, match="the decompressed body exceeds 1000 bytes"):
        compression.decompress(bomb, "gzip", 1000)


@pytest.mark.parametrize(
    ("body", "encoding", "message"),
    [
        (b"plain", "gzip", "the body is not gzip"),
        (gzip.compress(b"body", mtime=0)[:-4], "gzip", "its end is missing"),
    ],
)
def test_a_damaged_or_uncompressed_body_is_rejected(body: bytes, encoding: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        compression.decompress(body, encoding, 1000)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("deflate, gzip;q=0.5", "deflate"),
        ("deflate;q=0.5, gzip", "gzip"),
        ("br, *", ""),
        ("identity, gzip;q=0.5", ""),
        ("gzip;q=0", ""),
        ("gzip;q=much", ""),
        ("gzip, deflate, br, zstd", "gzip"),
    ],
)
def test_the_response_uses_the_clients_preferred_encoding(header: str, encoding: str) -> None:
    assert compression.accepted_encoding(header) == encoding
