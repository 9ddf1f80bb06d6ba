"""Zstandard compression of files, streaming, in bounded memory and up to a size limit."""

from __future__ import annotations

import sys
from pathlib import Path

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
    """Write the file from which `compress` made this one.

    Raises InvalidInput if the file is not a Zstandard stream, or as soon as it exceeds `limit` bytes.
    """
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG}
    with zstd.ZstdFile(source, options=options) as reader, target.open("wb") as writing:
        while piece := _next(reader):
            if writing.tell() + len(piece) > limit:
                raise InvalidInput(
                    f"the compressed file expands to more than {limit} bytes, the maximum", field="Zstandard size"
                )
            writing.write(piece)


def _next(reader: zstd.ZstdFile) -> bytes:
    try:
        return reader.read(PIECE)
    except (zstd.ZstdError, EOFError) as error:
        raise InvalidInput(f"the file is not a valid Zstandard stream: {error}", field="Zstandard stream") from error


def largest_compressed(size: int) -> int:
    """Return Zstandard's upper bound for the compressed size of `size` bytes."""
    return size + (size >> 8) + 128
