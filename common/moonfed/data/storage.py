"""Storage of the arrays of samples while they are read: memory or, if they would take too much of it, files.

Such files are mapped, so that the kernel reads what is needed, and gives the memory to others when they need it.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from moonfed.available_memory import host_available
from moonfed.errors import ResourceExhausted
from moonfed.sizes import human

Array = npt.NDArray[Any]
PART = 2  # of the available memory at most, because samples are there twice while they are handed to another process
CHUNK_BYTES = 1 << 24  # that are converted or checked at a time
GROWTH = 1.25  # of the memory for rows, when it is full
LOG_SECONDS = 10.0  # between two reports of progress

_log = logging.getLogger(__name__)


class Storage:
    """Memory for the arrays of one reading, and the directory for those that do not fit."""

    def __init__(
        self, directory: Path | None = None, room: int | None = None, release: Callable[[], None] = lambda: None
    ) -> None:
        """`room`: bytes that the arrays may take in memory; None: a PART of what is available.

        `directory`: for files named after the arrays, which need not exist yet; None: they are temporary. `release` is
        called if the disk is too full, to delete what is not needed.
        """
        self._directory, self._release = directory, release
        self._room = default_room() if room is None else room
        self.filled = False  # whether there are files

    def reserve(self, size: int) -> bool:
        """Return whether so many more bytes may be in memory; they are then counted."""
        if self._room is not None and size > self._room:
            return False
        self._room = None if self._room is None else self._room - size
        return True

    def rows(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, count: int | None = None) -> Rows:
        """Return an empty array for rows of this shape; `count`: how many there will be at most, if that is known.

        Raises ResourceExhausted, with both sizes, if neither memory nor disk has room for so many.
        """
        return Rows(self, name, shape, np.dtype(dtype), count)

    def keep(self, name: str, array: Array) -> Array:
        """Copy an array to a file, and return it mapped."""
        rows = Rows(self, name, array.shape[1:], array.dtype, None)
        rows.to_file(array.nbytes)
        for part in chunks(array):
            rows.append(part)
        return rows.array()

    def open(self, name: str, size: int) -> IO[bytes]:
        """Create a file for so many bytes; raise ResourceExhausted, with both sizes, if the disk has less."""
        directory = _temporary_directory() if self._directory is None else self._directory
        directory.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(directory).free < size:
            self._release()
        free = shutil.disk_usage(directory).free
        if free < size:
            raise _disk_full(free, size)
        self.filled = True
        if self._directory is None:
            return tempfile.TemporaryFile(dir=directory)
        (directory / name).unlink(missing_ok=True)  # an array that is converted remains mapped
        return (directory / name).open("w+b")


class Rows:
    """The rows of one array, in memory until they are too many, and then in a file."""

    def __init__(
        self, storage: Storage, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], count: int | None
    ) -> None:
        self._storage, self._name, self.shape, self._dtype = storage, name, shape, dtype
        self._row_bytes, self._count = prod(shape) * dtype.itemsize, count
        self._length = 0
        self._array: Array = np.empty((0, *shape), dtype)
        self._file: IO[bytes] | None = None
        self._reported = time.monotonic()
        if count:
            self._grow(count)

    def __len__(self) -> int:
        return self._length

    def __del__(self) -> None:
        if self._file is not None:  # reading has failed
            self._file.close()

    def append(self, rows: Array) -> None:
        """Add rows [n, …]."""
        end = self._length + len(rows)
        if self._file is None and end > len(self._array):
            self._grow(max(end, int(GROWTH * len(self._array))))
        if self._file is None:
            self._array[self._length : end] = rows
        else:
            self._write(self._file, rows)
        self._length = end

    def array(self) -> Array:
        """Return the rows; nothing can be appended afterwards. Those in a file are mapped, and cannot be written to."""
        if self._file is None:
            self._array.resize((self._length, *self.shape), refcheck=False)
            return self._array
        with self._file as file:
            file.flush()
            shape = (self._length, *self.shape)
            return map_file(file.name if isinstance(file.name, Path) else file, self._dtype, shape)

    def to_file(self, size: int) -> None:
        """Continue in a file, which will have about so many bytes."""
        self._file = self._storage.open(self._name, size)
        self._write(self._file, self._array[: self._length])
        self._array = self._array[:0]

    def _grow(self, length: int) -> None:
        if self._storage.reserve((length - len(self._array)) * self._row_bytes):
            if len(self._array):
                self._array.resize((length, *self.shape), refcheck=False)
            else:
                self._array = np.empty((length, *self.shape), self._dtype)
        else:
            self.to_file(length * self._row_bytes)

    def _write(self, file: IO[bytes], rows: Array) -> None:
        try:
            file.write(np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            statistics = os.fstatvfs(file.fileno())
            size = (self._count or self._length + len(rows)) * self._row_bytes
            raise _disk_full(statistics.f_bavail * statistics.f_frsize, size) from error
        if time.monotonic() >= self._reported + LOG_SECONDS:
            self._reported = time.monotonic()
            whole = f" of {human(self._count * self._row_bytes)}" if self._count else ""
            _log.info("%s%s of samples decoded to disk", human(self._length * self._row_bytes), whole)


def map_file(file: Path | IO[bytes], dtype: npt.DTypeLike, shape: tuple[int, ...], offset: int = 0) -> Array:
    """Map an array in a file for reading; raise ValueError or OSError if the file is too short."""
    if not prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r", offset, shape)


def place_of(array: Array) -> tuple[Path, int] | None:
    """Return the file that a mapped array is in, and where it begins; None for an array in memory.

    None also if another process cannot map it as it is, because it has gaps, or does not begin at a multiple of its
    items' size, or the file has no name.
    """
    root: Any = array
    while root is not None and not (isinstance(root, np.memmap) and not isinstance(root.base, np.ndarray)):
        root = getattr(root, "base", None)
    if root is None or root.filename is None or not (array.flags.c_contiguous and array.flags.aligned and array.size):
        return None
    return Path(root.filename), root.offset + array.ctypes.data - root.ctypes.data


def is_mapped(array: Array) -> bool:
    """Return whether an array is in a file rather than in memory."""
    root: Any = array
    while root is not None and not isinstance(root, np.memmap):
        root = getattr(root, "base", None)
    return root is not None


def chunks(array: Array) -> Iterator[Array]:
    """Yield the rows of an array in parts of CHUNK_BYTES."""
    step = max(1, CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def default_room() -> int | None:
    """Return the bytes of memory that samples may take; None: unknown."""
    available = host_available()
    return None if available is None else available // PART


def _temporary_directory() -> Path:
    """Return TMPDIR or, because /tmp is often in memory, /var/tmp."""
    large = Path("/var/tmp")  # noqa: S108 - the file has no name there
    return large if "TMPDIR" not in os.environ and large.is_dir() else Path(tempfile.gettempdir())


def _disk_full(free: int, needed: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"the disk has {human(free)} free; the decoded samples need {human(needed)}",
        field="free disk",
        value=free,
    )
