"""Texts of a folder as windows of tokens: the longest token of the vocabulary that matches is the next one.

Windows do not overlap, and none crosses texts; the last one of a text is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from moonfed.bundle.manifest import PADDING, InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.bad_cells import UnusableData
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.flaws import Flaw
from moonfed.data.image_folder import ImageFolder
from moonfed.data.source import HeartbeatCallback, report
from moonfed.data.storage import Storage
from moonfed.errors import InvalidInput, NotFound

TEXT = ".txt"
NOT_UTF8 = Flaw("is not UTF-8 and is ignored", "are not UTF-8 and are ignored")
OTHER = Flaw("is no .txt file and is ignored", "are no .txt files and are ignored")
CLOSED = Flaw("cannot be opened", "cannot be opened and are ignored")
EMPTY = Flaw("is empty and is ignored", "are empty and are ignored")


def holds_texts(folder: Path) -> bool:
    """Return whether there is a text directly in a folder."""
    try:
        return any(path.suffix.lower() == TEXT for path in folder.iterdir())
    except OSError:  # reading the folder gives the reason
        return False


def read_texts(
    images: ImageFolder, spec: InputSpec, target: TargetSpec, heartbeat: HeartbeatCallback, storage: Storage
) -> DataSet:
    """Read all texts, at any depth; UnusableData names the place of a character that no token begins with."""
    if spec.kind != "tokens":
        raise InvalidInput(f"{str(images.path)!r} holds texts; the model takes {spec.describe()}", field="data")
    try:
        files = list(images.files(images.path))
    except OSError as error:
        raise InvalidInput(f"{str(images.path)!r} cannot be read: {error.strerror}") from error
    return _windows(images, files, spec, target, heartbeat, storage)


def read_text_paths(paths: Sequence[Path], spec: InputSpec, target: TargetSpec) -> DataSet:
    """Read texts, and the texts of folders; NotFound and InvalidInput name a path that is neither."""
    found = list[Path]()
    for path in paths:
        if not path.exists():
            raise NotFound(field="PATH", value=path, rest="; there is no such file or folder")
        if not path.is_dir() and path.suffix.lower() != TEXT:
            raise InvalidInput(field="PATH", value=path, allowed=f"a {TEXT} file or a folder of them, or a .npz file")
        found += ImageFolder(path).files(path) if path.is_dir() else [path]
    samples = _windows(ImageFolder(paths[0]), found, spec, target, lambda: None, Storage())
    report(samples.notes)
    return samples


def _windows(
    images: ImageFolder,
    files: Sequence[Path],
    spec: InputSpec,
    target: TargetSpec,
    heartbeat: HeartbeatCallback,
    storage: Storage,
) -> DataSet:
    tokens, length = Tokens(spec.vocabulary), spec.shape[0]
    windows, sources = storage.rows("inputs", (length,), np.int64), list[Path]()
    for file in files:
        heartbeat()
        text = _read(file, images)
        if text:
            found = np.fromiter(tokens.encode(text, file), np.int64)
            padded = np.full((-(-len(found) // length), length), PADDING, np.int64)
            padded.reshape(-1)[: len(found)] = found
            windows.append(padded)
            sources += [file] * len(padded)
    if not sources:
        raise InvalidInput(f"{str(images.path)!r} has no readable texts; it needs files whose names end in {TEXT}")
    notes = tuple(images.flaws.sentences(len(files), str(images.path)))
    return check_data_set(windows.array(), None, spec, target, str(images.path), files=sources, notes=notes)


def _read(file: Path, images: ImageFolder) -> str:
    """Return a file's text; empty for one that is left out."""
    if file.suffix.lower() != TEXT:
        images.flaws.add(OTHER, file)
        return ""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        images.flaws.add(NOT_UTF8, file)
        return ""
    except OSError as error:
        images.flaws.add(CLOSED, file, error.strerror or "")
        return ""
    if not text:
        images.flaws.add(EMPTY, file)
    return text


class Tokens:
    """A vocabulary, in which the longest token that matches is found."""

    def __init__(self, vocabulary: tuple[str, ...]) -> None:
        self._places: Mapping[str, int] = {token: place for place, token in enumerate(vocabulary) if place != PADDING}
        self._lengths = sorted({len(token) for token in self._places}, reverse=True)

    def encode(self, text: str, origin: Path) -> Iterator[int]:
        """Yield the positions of a text's tokens."""
        at = 0
        while at < len(text):
            length = next((length for length in self._lengths if text[at : at + length] in self._places), 0)
            if not length:
                line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
                rest = f"in line {line}, place {column}, which begins no token of the vocabulary"
                raise UnusableData(f"{origin} has {text[at]!r} {rest}", f"a text has a character {rest}")
            yield self._places[text[at : at + length]]
            at += length
