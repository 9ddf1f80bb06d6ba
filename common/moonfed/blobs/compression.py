"""Zstandard compression of files, streaming, in bounded memory and up to a size limit."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import zstandard

from moonfed.errors import InvalidInput

PIECE = 1 << 18  # bytes at once
WINDOW = 1 << 23  # the largest window that a stream may ask its reader for, in bytes


def compress(source: Path, target: Path) -> None:
    """Write a compressed copy. Its bytes depend only on the content and the library's release."""
    with source.open("rb") as reading, target.open("wb") as writing:
        compressor = zstandard.ZstdCompressor(write_content_size=True)
        compressor.copy_stream(reading, writing, size=source.stat().st_size, read_size=PIECE, write_size=PIECE)


def decompress(source: Path, target: Path, limit: int) -> None:
    """Write the file from which `compress` made this one.

    Raises InvalidInput if the file is not a Zstandard stream, or as soon as it exceeds `limit` bytes.
    """
    with ExitStack() as stack:
        compressed, writing = stack.enter_context(source.open("rb")), stack.enter_context(target.open("wb"))
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        reader = decompressor.stream_reader(compressed, read_size=PIECE, read_across_frames=True)
        while piece := _next(reader):
            if writing.tell() + len(piece) > limit:
                raise InvalidInput(
                    f"the compressed file expands to more than {limit} bytes, the maximum", field="Zstandard size"
                )
            writing.write(piece)


def _next(reader: zstandard.ZstdDecompressionReader) -> bytes:
    try:
        return bytes(reader.read(PIECE))
    except zstandard.ZstdError as error:
        raise InvalidInput(f"the file is not a valid Zstandard stream: {error}", field="Zstandard stream") from error


def largest_compressed(size: int) -> int:
    """Return Zstandard's upper bound for the compressed size of `size` bytes."""
    return size + (size >> 8) + 128
