"""Fingerprints of data, from names, sizes and times alone. The device's agent may import this, so it needs no numpy."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from moonfed.data.formats import FOLDER, FUNCTION, find_kind
from moonfed.data.image_folder import ImageFolder

MISSING = "missing"


def data_fingerprint(text: str, ignored: Collection[str] = ()) -> str | None:
    """Return a fingerprint of what `--data` names; None for a function, whose result cannot be known beforehand.

    `ignored`: names of folders to leave out.
    """
    try:
        kind = find_kind(text)
        if kind == FUNCTION:
            return None
        return folder_fingerprint(Path(text), ignored) if kind == FOLDER else file_fingerprint(Path(text))
    except OSError:
        return MISSING


def file_fingerprint(path: Path) -> str:
    """Hash the path, size and modification time of a file, or of all files of a table in a folder."""
    texts = []
    for file in [path, *(sorted(path.rglob("*")) if path.is_dir() else ())]:
        facts = file.stat()
        texts.append(f"{file.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}")
    text = "\n".join(texts)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def folder_fingerprint(path: Path, ignored: Collection[str] = ()) -> str:
    """Hash the paths, sizes and modification times of all files, and which cannot be read."""
    digest = hashlib.sha256(str(path.resolve()).encode(errors="surrogateescape"))
    images = ImageFolder(path, ignored)
    for folder in images.classes():
        digest.update(f"{folder.name}\0\n".encode(errors="surrogateescape"))
        try:
            for file in images.files(folder):
                digest.update(f"{folder.name}\0{file}\0{_facts(file)}\n".encode(errors="surrogateescape"))
        except OSError:
            digest.update(b"unreadable\n")
    for file in images.loose():  # tables of targets, texts, images without classes
        digest.update(f"{file}\0{_facts(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _facts(file: Path) -> str:
    try:
        facts = file.stat()
    except OSError:  # a dangling link, or just deleted; reading counts it
        return "unreadable"
    return f"{facts.st_size}\0{facts.st_mtime_ns}\0{os.access(file, os.R_OK)}"
