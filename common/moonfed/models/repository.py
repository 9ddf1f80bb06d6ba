"""The directory of one model in a repository of Triton's layout, and its writers.

    REPOSITORY/NAME/config.pbtxt
    REPOSITORY/NAME/labels.txt
    REPOSITORY/NAME/7/model.onnx

A server may scan it at any moment. So a version is written under a name that servers ignore (Triton skips directories
whose names are not numbers), and renamed when it is complete; files are replaced by renaming too. A model's first
version appears together with its directory, configuration and labels: if they appeared one by one, a server could
report a model without versions, or serve one without its configuration.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from moonfed.errors import InvalidInput
from moonfed.files import make_directories, new_directory, write_durably

CONFIG_FILE = "config.pbtxt"
LABELS_FILE = "labels.txt"
MODEL_FILE = "model.onnx"
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[1-9][0-9]*")

Directory = TypeVar("Directory", bound="RepositoryModel")


def require_model_name(name: str) -> None:
    """Raise InvalidInput unless a name can be a model's directory."""
    if not MODEL_NAME.fullmatch(name):
        raise InvalidInput(field="name", value=name, allowed="letters, digits, '.', '-' and '_', such as 'digits'")


class RepositoryModel:
    """One model's directory in a repository."""

    def __init__(self, repository: Path, name: str) -> None:
        require_model_name(name)
        if repository.exists() and not repository.is_dir():
            raise InvalidInput(field="repository", value=repository, allowed="a directory")
        self.name, self.path = name, repository / name

    def versions(self) -> list[int]:
        """List the versions, oldest first."""
        if not self.path.is_dir():
            return []
        names = (entry.name for entry in self.path.iterdir() if (entry / MODEL_FILE).exists())
        return sorted(int(name) for name in names if _VERSION.fullmatch(name))

    def version_path(self, version: int) -> Path:
        """Return the directory of a version, whether or not it exists."""
        return self.path / str(version)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other writers; the lock is on the directory itself, so there is no lock file."""
        make_directories(self.path)
        with _lock_on(self.path):
            yield

    @contextmanager
    def open_for_writing(self: Directory) -> Iterator[Directory]:
        """Lock the directory; a missing one is created under a hidden name and renamed at the end."""
        make_directories(self.path.parent)
        with _lock_on(self.path.parent):  # serialises two writers of a first version
            if not self.path.exists():
                _remove_leftovers(self.path.parent, f".{self.name}.*")
                hidden = type(self)(self.path.parent, self.name)
                with new_directory(self.path) as hidden.path:
                    yield hidden
                return
        with self.locked():
            yield self

    @contextmanager
    def new_version(self, version: int) -> Iterator[Path]:
        """Yield an empty directory that becomes a version at the end. Call this with the lock."""
        _remove_leftovers(self.path, ".[1-9]*.*")
        with new_directory(self.version_path(version)) as directory:
            yield directory

    def remove_version(self, version: int) -> None:
        """Remove a version; no server finds half of it. Call this with the lock."""
        hidden = self.path / f".{version}.removed"
        shutil.rmtree(hidden, ignore_errors=True)
        self.version_path(version).rename(hidden)
        shutil.rmtree(hidden)

    def replace(self, name: str, text: str) -> None:
        """Replace a file next to the versions."""
        write_durably(self.path / name, text.encode())


@contextmanager
def _lock_on(directory: Path) -> Iterator[None]:
    """Lock a directory against other processes that lock it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(directory: Path, pattern: str) -> None:
    """Remove files of writers that were killed; the lock excludes live ones."""
    for leftover in directory.glob(pattern):
        shutil.rmtree(leftover, ignore_errors=True)
