"""Contents of a directory after a power loss: the files and names that were fsynced, and nothing else.

The database is the exception: SQLite syncs it out of our sight, which `PRAGMA synchronous=FULL` promises and
`test_store` checks, so its files are taken as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

Inode = tuple[int, int]


@dataclass
class Disk:
    """Observes every os.fsync of this process, and keeps a copy of the durable data."""

    contents: dict[Inode, bytes] = field(default_factory=dict)  # of files, at their last fsync
    names: dict[Inode, dict[str, Inode]] = field(default_factory=dict)  # of directories, at theirs
    directories: set[Inode] = field(default_factory=set)
    _held: dict[Inode, int] = field(default_factory=dict)  # descriptors: what is open keeps its inode
    _fsync = staticmethod(os.fsync)

    def fsync(self, descriptor: int) -> None:
        """Replace os.fsync."""
        self._fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[self._hold(path)] = dict(self._listed(path))
        else:
            self.contents[self._hold(path)] = path.read_bytes()

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._held.values():
            os.close(descriptor)

    def _hold(self, path: Path) -> Inode:
        if path.name.startswith("coordinator.db"):  # to close it would end the locks that SQLite has on it
            return _inode(path)
        descriptor = os.open(path, os.O_RDONLY)
        found = os.fstat(descriptor)
        inode = found.st_dev, found.st_ino
        if self._held.setdefault(inode, descriptor) != descriptor:
            os.close(descriptor)
        return inode

    def _listed(self, path: Path) -> Iterator[tuple[str, Inode]]:
        for entry in path.iterdir():
            with suppress(FileNotFoundError):  # a temporary file, gone meanwhile
                inode = self._hold(entry)
                if entry.is_dir():
                    self.directories.add(inode)
                yield entry.name, inode

    def survivors(self, root: Path, target: Path) -> None:
        """Write the durable content of the directory `root`, which is durable itself, to `target`."""
        self._write(_inode(root), target)
        for database in root.rglob("coordinator.db*"):
            place = target / database.relative_to(root)
            if place.parent.is_dir() and not place.name.endswith("-shm"):
                place.write_bytes(database.read_bytes())

    def _write(self, inode: Inode, target: Path) -> None:
        target.mkdir()
        for name, found in self.names.get(inode, {}).items():
            if found in self.directories:
                self._write(found, target / name)
            else:
                (target / name).write_bytes(self.contents.get(found, b""))


def _inode(path: Path) -> Inode:
    found = path.stat()
    return found.st_dev, found.st_ino
