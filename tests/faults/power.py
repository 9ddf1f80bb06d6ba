"""What a power loss would leave of a directory: the files and names that were fsynced, and nothing else.

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
    """Sees every os.fsync of this process, and keeps what it made durable."""

    contents: dict[Inode, bytes] = field(default_factory=dict)  # of files, at their last fsync
    names: dict[Inode, dict[str, Inode]] = field(default_factory=dict)  # of directories, at theirs
    directories: set[Inode] = field(default_factory=set)
    _fsync = staticmethod(os.fsync)

    def fsync(self, descriptor: int) -> None:
        """In the place of os.fsync."""
        self._fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[_inode(path)] = dict(self._listed(path))
        else:
            self.contents[_inode(path)] = path.read_bytes()

    def _listed(self, path: Path) -> Iterator[tuple[str, Inode]]:
        for entry in path.iterdir():
            with suppress(FileNotFoundError):  # a temporary file, gone meanwhile
                if entry.is_dir():
                    self.directories.add(_inode(entry))
                yield entry.name, _inode(entry)

    def survivors(self, root: Path, target: Path) -> None:
        """Writes what is durable below the directory `root`, which is durable itself, as `target`."""
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
