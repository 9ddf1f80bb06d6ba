"""Fingerprints of data, from names, sizes and times alone. The device's agent may import this, so it needs no numpy."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from moonfed.data.formats import FOLDER, FUNCTION, find_kind

MISSING = "missing"


def data_fingerprint(text: str) -> str | None:
    """Return a fingerprint of what `--data` names; None for a function, whose result cannot be known beforehand."""
    kind = find_kind(text)
    if kind == FUNCTION:
        return None
    try:
        return folder_fingerprint(Path(text)) if kind == FOLDER else file_fingerprint(Path(text))
    except OSError:
        return MISSING


def file_fingerprint(path: Path) -> str:
    """Hash a file's path, size and modification time."""
    facts = path.stat()
    text = f"{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def folder_fingerprint(path: Path) -> str:
    """Hash the paths, sizes and modification times of all files in class folders."""
    digest = hashlib.sha256(str(path.resolve()).encode(errors="surrogateescape"))
    for folder in class_folders(path):
        for file in image_files(folder):
            digest.update(f"{folder.name}\0{file}\0{_facts(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def class_folders(path: Path) -> list[Path]:
    """Return the folders of a folder except hidden ones, sorted."""
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def image_files(folder: Path) -> Iterator[Path]:
    """Return all image files below a folder except hidden ones, in a deterministic order."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(root, name)


def _facts(file: Path) -> str:
    try:
        facts = file.stat()
    except OSError:  # a dangling link, or just deleted; reading counts it
        return "unreadable"
    return f"{facts.st_size}\0{facts.st_mtime_ns}"
