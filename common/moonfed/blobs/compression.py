"""Zstandard compression of files, streaming, in bounded memory and up to a size limit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from moonfed.errors import InvalidInput

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

PIECE = 1 << 18  # bytes at once
WINDOW_LOG = 23  # log2 of the largest window that a stream may ask its reader for, in bytes


def compress(source: Path, target: Path) -> None:
    """Write a compressed copy. Its bytes depend only on the content and the library's release."""
    with source.open("rb") as reading, target.open("wb") as writing:
        compressor = zstd.ZstdCompressor()
        compressor.set_pledged_input_size(source.stat().st_size)  # which the stream then declares
        while piece := reading.read(PIECE):
            writing.write(compressor.compress(piece))
        writing.write(compressor.flush())


def decompress(source: Path, target: Path, limit: int) -> None:
    """Write what a compressed file expands to; memory and time are limited, whatever the file contains.

    Raises InvalidInput if the file is not one whole Zstandard frame, or as soon as it exceeds `limit` bytes.
    """
    decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})
    with source.open("rb") as reading, target.open("wb") as writing:
        while not decompressor.eof:
            piece = _next(decompressor, reading)
            if writing.tell() + len(piece) > limit:
                raise InvalidInput(
                    f"the compressed file expands to more than {limit} bytes, the maximum", field="Zstandard size"
                )
            writing.write(piece)
        if decompressor.unused_data or reading.read(1):  # millions of tiny frames would take minutes
            raise _invalid("it goes on after its first frame")


def _next(decompressor: zstd.ZstdDecompressor, reading: BinaryIO) -> bytes:
    """Decompress at most a piece; it may be empty before the end."""
    more = reading.read(PIECE) if decompressor.needs_input else b""
    if decompressor.needs_input and not more:
        raise _invalid("it is cut off")
    try:
        return decompressor.decompress(more, PIECE)
    except zstd.ZstdError as error:
        raise _invalid(str(error)) from error


def _invalid(reason: str) -> InvalidInput:
    return InvalidInput(f"the file is not a valid Zstandard stream: {reason}", field="Zstandard stream")


def largest_compressed(size: int) -> int:
    """Return Zstandard's upper bound for the compressed size of `size` bytes."""
    return size + (size >> 8) + 128
