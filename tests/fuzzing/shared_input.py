"""Memory that a fuzzing process shares with its parent: the number of inputs so far, and the last one."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_HEADER = struct.Struct("<QQ")
_BYTES = 1 << 20  # more than any input


class SharedInput:
    """A mapped file, which survives a process that its input kills."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)

    def begin(self, content: bytes) -> None:
        """Record an input before it is read."""
        _HEADER.pack_into(self._map, 0, self.count + 1, len(content))
        self._map[_HEADER.size : _HEADER.size + len(content)] = content

    @property
    def count(self) -> int:
        """The number of inputs so far."""
        return int(_HEADER.unpack_from(self._map)[0])

    @property
    def last(self) -> bytes:
        """The last input."""
        length = _HEADER.unpack_from(self._map)[1]
        return self._map[_HEADER.size : _HEADER.size + length]
