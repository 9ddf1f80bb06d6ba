"""An .npz file with `inputs` [N, …] and `labels` [N]."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from edge_client.data.samples import RawSamples, Sign, checked
from moonfed.errors import InvalidInput, NotFound
from moonfed.manifest import InputSpec


class NpzSource:
    """Samples in one .npz file, already in the bundle's dtype and shape. Pickled arrays are never opened."""

    decodes = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raises NotFound unless the file is there."""
        if not self.path.is_file():
            raise NotFound(f"data is {str(self.path)!r}; there is no such file")

    def fingerprint(self) -> str:
        """Of path, size and time of change."""
        self.check()
        facts = self.path.stat()
        text = f"{self.path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
        return hashlib.sha256(text.encode()).hexdigest()

    def read(self, spec: InputSpec, classes: tuple[str, ...], sign: Sign) -> RawSamples:
        """The file's samples."""
        self.check()
        sign()
        return read_npz(self.path, spec, classes)


def read_npz(path: Path, spec: InputSpec, classes: tuple[str, ...]) -> RawSamples:
    """Reads and checks an .npz file; InvalidInput says what is wrong with it."""
    with path.open("rb") as file:  # numpy leaves a damaged one open
        try:
            archive = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise InvalidInput(f"{path} is not an .npz file: {error}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InvalidInput(f"{path} holds a single array; it must be an .npz file with 'inputs' and 'labels'")
        inputs, labels = (_array(archive, field, path) for field in ("inputs", "labels"))
    return checked(inputs, labels, spec, classes, str(path))


def _array(archive: np.lib.npyio.NpzFile, field: str, path: Path) -> object:
    if field not in archive.files:
        raise InvalidInput(f"{path} has no field {field!r}; found {archive.files}, 'inputs' and 'labels' needed")
    try:
        return archive[field]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:  # pickled objects, or damage
        raise InvalidInput(f"{field} of {path} cannot be read: {error}") from error
