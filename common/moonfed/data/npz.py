"""An .npz file with `inputs` [N, …] and `targets` [N, …], which for classes may also be called `labels`.

Arrays that are too large for memory stay in the file, which is mapped. Compressed ones are unpacked to another file.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, Targets, check_data_set
from moonfed.data.fingerprint import file_fingerprint
from moonfed.data.source import IF_PRESENT, IGNORED, REQUIRED, HeartbeatCallback, LabelUse, wants_labels
from moonfed.data.storage import CHUNK_BYTES, Storage, map_file
from moonfed.errors import InvalidInput
from moonfed.files import require_file

LOCAL_HEADER, NAME_LENGTHS = 30, 26  # bytes of a zip file's header of a member, and where it has its names' lengths


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
        storage: Storage | None = None,
    ) -> DataSet:
        """Return the file's samples."""
        heartbeat()
        self.check()
        storage = storage or Storage()
        with _opened(self.path) as archive:
            inputs = _samples(archive, "inputs", self.path, storage, heartbeat)
            field = "targets" if "targets" in archive.files or target.kind != "class" else "labels"
            needed = labels if not target.is_input or labels == IGNORED else IF_PRESENT
            used = wants_labels(needed, field in archive.files)
            targets = _samples(archive, field, self.path, storage, heartbeat) if used else None
        return check_data_set(inputs, targets, spec, target, str(self.path), self.path, storage=storage)


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
    _require_field(archive, field, path)
    with _reading(field, path):
        return archive[field]


def _samples(
    archive: np.lib.npyio.NpzFile, field: str, path: Path, storage: Storage, heartbeat: HeartbeatCallback
) -> object:
    """Return an array in memory or, if it is too large, mapped."""
    _require_field(archive, field, path)
    with _reading(field, path):
        files = archive.zip
        assert files is not None  # noqa: S101 - the archive is open
        member = files.open(f"{field}.npy")
        shape, is_transposed, dtype = _header(member)
        if is_transposed or dtype.hasobject or not shape or storage.reserve(prod(shape) * dtype.itemsize):
            return archive[field]
        info = files.getinfo(f"{field}.npy")
        begin = _begin(path, info) + member.tell()
        if info.compress_type == zipfile.ZIP_STORED and begin % dtype.itemsize == 0:
            return map_file(path, dtype, shape, begin)
    rows = storage.rows(field, shape[1:], dtype, shape[0])
    step = max(1, CHUNK_BYTES // max(1, prod(shape[1:]) * dtype.itemsize))
    for start in range(0, shape[0], step):
        heartbeat()
        part = (min(step, shape[0] - start), *shape[1:])
        with _reading(field, path):
            read = np.frombuffer(member.read(prod(part) * dtype.itemsize), dtype).reshape(part)
        rows.append(read)
    return rows.array()


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a .npy file's header: shape, whether the first axis varies fastest, dtype."""
    if np.lib.format.read_magic(member) == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    return np.lib.format.read_array_header_2_0(member)


def _begin(path: Path, member: zipfile.ZipInfo) -> int:
    """Return where the content of a member of a zip file begins."""
    with path.open("rb") as file:
        file.seek(member.header_offset + NAME_LENGTHS)
        name, extra = struct.unpack("<HH", file.read(LOCAL_HEADER - NAME_LENGTHS))
        return int(member.header_offset + LOCAL_HEADER + name + extra)


def _require_field(archive: np.lib.npyio.NpzFile, field: str, path: Path) -> None:
    if field not in archive.files:
        raise InvalidInput(f"{path} has no field {field!r}, which is needed; found {archive.files}", field=field)


@contextmanager
def _reading(field: str, path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # pickled objects or damage, reported as many kinds of errors
        raise InvalidInput(f"{field} of {path} cannot be read: they are objects, such as lists, or damaged") from error
