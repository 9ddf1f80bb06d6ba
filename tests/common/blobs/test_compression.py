from __future__ import annotations

import random
from pathlib import Path

import pytest

from moonfed.blobs.compression import PIECE, compress, decompress, largest_compressed, zstd
from moonfed.errors import InvalidInput
from tests.support.refusals import refused

SKIPPED = b"\x50\x2a\x4d\x18" + bytes(4)  # a frame without content
NOISE = random.Random(0).randbytes(PIECE)
CONTENT = NOISE + bytes(3 * PIECE)


def expanded(content: bytes, directory: Path, limit: int = 1 << 24) -> bytes:
    (directory / "file").write_bytes(content)
    decompress(directory / "file", directory / "expanded", limit)
    return (directory / "expanded").read_bytes()


@pytest.mark.parametrize("content", [b"", b"x", CONTENT], ids=len)
def test_a_file_returns_within_its_limit(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(content)
    compress(tmp_path / "content", tmp_path / "compressed")
    compressed = (tmp_path / "compressed").read_bytes()
    assert len(compressed) <= largest_compressed(len(content))
    assert zstd.get_frame_info(compressed).decompressed_size == len(content)
    assert expanded(compressed, tmp_path, len(content)) == content
    with refused(InvalidInput, "Zstandard size"):
        expanded(zstd.compress(content + b"x"), tmp_path, len(content))


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_file_that_is_cut_off_is_rejected(kept: int, tmp_path: Path) -> None:
    with refused(InvalidInput, "Zstandard stream"):
        expanded(zstd.compress(CONTENT)[:kept], tmp_path)


@pytest.mark.parametrize("tail", [zstd.compress(b""), SKIPPED, b"x"], ids=["frame", "skipped", "text"])
def test_a_file_has_one_frame(tail: bytes, tmp_path: Path) -> None:
    content = zstd.compress(CONTENT)
    piece = next(frame for size in range(PIECE) if len(frame := zstd.compress(NOISE[size:])) == PIECE)  # read at once
    for wrong in (content + tail, piece + tail, tail + content, tail * PIECE):
        with refused(InvalidInput, "Zstandard stream"):
            expanded(wrong, tmp_path)


def test_a_huge_window_is_rejected(tmp_path: Path) -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    with refused(InvalidInput, "Zstandard stream"):
        expanded(compressor.compress(bytes(1000)) + compressor.flush(), tmp_path)
