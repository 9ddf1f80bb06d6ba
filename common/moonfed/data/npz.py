"""An .npz file with `inputs` [N, …] and `targets` [N, …], which for classes may also be called `labels`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, Targets, check_data_set
from moonfed.data.fingerprint import file_fingerprint
from moonfed.data.source import IF_PRESENT, IGNORED, REQUIRED, HeartbeatCallback, LabelUse, wants_labels
from moonfed.errors import InvalidInput
from moonfed.files import require_file


class NpzSource:
    """Samples in one .npz file, already in the bundle's dtype and shape. Pickled arrays are never opened."""

    decodes = False

    def __init__(self, path: Path, option: str = "data") -> None:
        """`option`: its name, for messages."""
        self.path, self._option = path, option

    def check(self) -> None:
        """Raise NotFound unless the file is there."""
        require_file(self._option, self.path)

    def fingerprint(self) -> str:
        """Hash path, size and modification time."""
        self.check()
        return file_fingerprint(self.path)

    def read(
        self,
        spec: InputSpec,
        target: TargetSpec,
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
    ) -> DataSet:
        """Return the file's samples."""
        heartbeat()
        self.check()
        with _opened(self.path) as archive:
            inputs = _array(archive, "inputs", self.path)
            field = "targets" if "targets" in archive.files or target.kind != "class" else "labels"
            needed = labels if not target.is_input or labels == IGNORED else IF_PRESENT
            used = wants_labels(needed, field in archive.files)
            targets = _array(archive, field, self.path) if used else None
        return check_data_set(inputs, targets, spec, target, str(self.path), self.path)


def infer_input(path: Path) -> tuple[InputSpec, int]:
    """Return one raw sample and the number of classes, as the arrays show them; InvalidInput for other arrays."""
    with _opened(path) as archive:
        inputs, labels = (np.asarray(_array(archive, field, path)) for field in ("inputs", "labels"))
    kind: Literal["image", "features"] = "image" if inputs.ndim == 4 else "features"
    if inputs.ndim not in (2, 4) or labels.dtype.kind not in "iu" or not len(labels):
        raise InvalidInput(
            f"{path} has inputs {list(inputs.shape)} and labels of dtype {labels.dtype}; it must have images "
            "[N, height, width, channels] or features [N, width], and whole numbers",
            field="shape of inputs",
            value=list(inputs.shape),
        )
    return InputSpec(kind=kind, shape=inputs.shape[1:]), int(labels.max()) + 1


def read_arrays(path: Path) -> tuple[Targets, Targets | None]:
    """Return the inputs, and the targets if there are any."""
    with _opened(path) as archive:
        inputs = np.asarray(_array(archive, "inputs", path))
        return inputs, np.asarray(_array(archive, "targets", path)) if "targets" in archive.files else None


def read_parties(path: Path, name: str) -> list[object]:
    """Return an array of the parties of samples; InvalidInput unless it has one for each."""
    with _opened(path) as archive:
        found, inputs = (np.asarray(_array(archive, field, path)) for field in (name, "inputs"))
    if found.shape != inputs.shape[:1]:
        raise InvalidInput(
            f"{name} of {path} has shape {list(found.shape)}; it must be [{len(inputs)}], a party for each input",
            field=f"shape of {name}",
            value=list(found.shape),
        )
    parties: list[object] = found.tolist()
    return parties


@contextmanager
def _opened(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    with path.open("rb") as file:  # numpy leaves a damaged one open
        try:
            archive = np.load(file, allow_pickle=False)
        except Exception as error:  # numpy and zipfile raise many kinds of errors for damaged files
            raise InvalidInput(f"{path} is not an .npz file, or is damaged", field="npz", value=path) from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InvalidInput(
                f"{path} holds a single array; it must be an .npz file with named ones", field="arrays", value=1
            )
        yield archive


def _array(archive: np.lib.npyio.NpzFile, field: str, path: Path) -> object:
    if field not in archive.files:
        raise InvalidInput(f"{path} has no field {field!r}, which is needed; found {archive.files}", field=field)
    try:
        return archive[field]
    except Exception as error:  # pickled objects or damage, reported as many kinds of errors
        raise InvalidInput(f"{field} of {path} cannot be read: they are objects, such as lists, or damaged") from error
