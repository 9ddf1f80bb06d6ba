"""A loaded data set: raw samples, as they go into a plan and into an ONNX graph, checked against a bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.blobs.store import ref_of_file
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import UNKNOWN, TargetSpec
from moonfed.data.storage import Storage, chunks, is_mapped
from moonfed.data.table_spec import TableSpec
from moonfed.data.windows import Windows, windows_of_one_series
from moonfed.errors import InvalidInput

Inputs = npt.NDArray[Any]  # see `InputSpec`
Labels = npt.NDArray[np.int64]
Targets = npt.NDArray[Any]  # see `TargetSpec`
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Samples in the bundle's form, with their targets, and the columns that they come from.

    `targets`: as `target` describes them, [N, …]; None: the source has none. Where the input is the target, they say
    which samples are anomalous, uint8 [N], if they are known. `origin`: the source, for messages.
    """

    inputs: Inputs  # [N, …]
    targets: Targets | None
    target: TargetSpec
    table: TableSpec | None = None  # the columns of a table
    origin: str = "the data"
    file: Path | None = None  # which holds all samples
    files: tuple[Path, ...] = ()  # one for each sample
    rows: Rows | None = None  # of a table: their numbers in the file
    windows: Windows | None = None  # of series, if samples overlap
    notes: tuple[str, ...] = ()  # sentences about what the source has left out, or used only in part

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def labels(self) -> Labels:
        """The classes of the samples; InvalidInput if the source has none."""
        return self.known_targets()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, labels or values."""
        return self.target.names

    def known_targets(self) -> Targets:
        """Return the targets; raise InvalidInput if the source has none, and the input is not the target."""
        if self.targets is not None:
            return self.targets
        if self.target.is_input:
            return np.zeros((len(self), 0), self.target.dtype)
        raise InvalidInput(f"{self.origin} has no {self.target.noun}, which are needed", field=self.target.noun)

    def take(self, rows: Rows) -> DataSet:
        """Return a copy of some samples."""
        targets = None if self.targets is None else self.targets[rows]
        files = tuple(self.files[row] for row in rows) if self.files else ()
        numbers = None if self.rows is None else self.rows[rows]
        windows = None if self.windows is None else self.windows.take(rows)
        return replace(self, inputs=self.inputs[rows], targets=targets, files=files, rows=numbers, windows=windows)

    def require_samples(self) -> None:
        """Raise InvalidInput unless there is a sample."""
        if len(self) == 0:
            raise InvalidInput(f"{self.origin} holds no samples; at least one is needed", field="samples", value=0)

    def names(self) -> list[str]:
        """Return each sample's name: its file, or its position in the file."""
        if self.files:
            return list(map(str, self.files))
        source = self.file.name if self.file else self.origin
        if self.rows is None:
            return [f"{source}[{position}]" for position in range(len(self))]
        return [f"{source}, row {row}" for row in self.rows]

    def sha256(self) -> str:
        """Return a digest: of the file, or of the names and contents of several, or of the samples of a function."""
        if self.file:
            return ref_of_file(self.file).sha256
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{file.parent.name}/{file.name} {ref_of_file(file).sha256}\n".encode())
        if not self.files:
            for array in (self.inputs, self.targets):
                if array is not None:
                    digest.update(f"{array.dtype}{array.shape}".encode())
                    digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def check_data_set(
    inputs: object,
    targets: object | None,
    spec: InputSpec,
    target: TargetSpec,
    origin: str,
    file: Path | None = None,
    files: Sequence[Path] = (),
    notes: tuple[str, ...] = (),
    storage: Storage | None = None,
) -> DataSet:
    """Convert a user's arrays to samples; InvalidInput names the field, what was found and what is allowed.

    `targets`: None if the source has none. `origin`: the file or function that they came from, for the message.
    Mapped arrays stay where they are, if need be converted in `storage`.
    """
    raw = check_inputs(inputs, spec, origin, storage)
    forecast = spec.kind == "series" and target.kind == "values" and len(target.shape) == 2
    return DataSet(
        inputs=raw,
        targets=None if targets is None else check_targets(targets, len(raw), target, origin),
        target=target,
        table=spec.table,
        origin=origin,
        file=file,
        files=tuple(files),
        windows=windows_of_one_series(raw, target.shape[0]) if forecast else None,
        notes=notes,
    )


def check_targets(values: object, count: int, target: TargetSpec, origin: str) -> Targets:
    """Convert a user's targets; InvalidInput if they are not what `target` describes, one for each sample."""
    if target.kind == "class":
        return check_labels(values, count, target.names, origin)
    found = _as_array(values, origin, target)
    shapes = [(count, *target.shape)]
    if target.kind == "none":  # whether samples are anomalous
        shapes.insert(0, (count,))
    if found.shape not in shapes:
        wanted = ", ".join(map(str, shapes[0]))
        raise InvalidInput(
            f"targets of {origin} have shape {list(found.shape)}; the task takes [{wanted}]",
            field="shape of targets",
            value=list(found.shape),
        )
    if target.kind == "values":
        return _check_values(found, origin)
    most = len(target.names) - 1 if target.kind == "mask" else 1
    for part in chunks(found):
        whole = part.dtype.kind in "iub" or (part.dtype.kind == "f" and bool((part == np.floor(part)).all()))
        bad = part[(part != UNKNOWN) & ((part < 0) | (part > most))] if whole else part.reshape(-1)[:1]
        if bad.size:
            raise InvalidInput(
                f"targets of {origin} hold {bad[0]}; the task takes 0 to {most}, or {UNKNOWN} for what is unknown",
                field="targets",
                value=str(bad[0]),
            )
    return np.ascontiguousarray(found.astype(np.uint8, copy=False))


def _check_values(found: Targets, origin: str) -> Targets:
    if found.dtype.kind not in "iuf":
        raise InvalidInput(
            f"targets of {origin} have dtype {found.dtype}; they must be numbers",
            field="dtype of targets",
            value=str(found.dtype),
        )
    with np.errstate(over="ignore"):  # becomes infinite, which is rejected below
        values = found.astype(np.float32, copy=False)
    if not _finite(values):
        raise InvalidInput(f"targets of {origin} hold NaN or infinite values; all must be finite", field="targets")
    return np.ascontiguousarray(values)


def _as_array(values: object, origin: str, target: TargetSpec) -> Targets:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidInput(
            f"targets of {origin} are lists of different lengths; the task takes {target.describe()} for each sample",
            field="targets",
        ) from error


def check_labels(labels: object, count: int, classes: Sequence[str], origin: str) -> Labels:
    """Convert a user's labels; InvalidInput if they are not positions in `classes`, one for each sample."""
    targets = label_array(labels, origin)
    if targets.ndim > 1:
        raise InvalidInput(
            f"labels of {origin} have shape {list(targets.shape)}{_meaning(targets)}; there must be one for each of "
            f"the {count} inputs, the number of its class"
        )
    if targets.dtype.kind not in "iu":
        raise InvalidInput(f"labels of {origin} have dtype {targets.dtype}; they must be whole numbers")
    if targets.shape != (count,):
        shape = list(targets.shape)
        raise InvalidInput(f"labels of {origin} have shape {shape}; there must be one for each of the {count} inputs")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < len(classes)):
        raise InvalidInput(
            f"labels of {origin} range from {targets.min()} to {targets.max()}; "
            f"the model has {len(classes)} classes, 0 to {len(classes) - 1}"
        )
    return targets.astype(np.int64)


def label_array(labels: object, origin: str) -> npt.NDArray[Any]:
    """Convert a user's labels to an array; InvalidInput for lists of different lengths."""
    try:
        return np.asarray(labels)
    except ValueError as error:
        raise InvalidInput(
            f"labels of {origin} are lists of different lengths, as if samples had several classes; there must be one "
            "whole number for each input"
        ) from error


def _meaning(targets: npt.NDArray[Any]) -> str:
    """Say what labels with more than one value for each sample are, where that is certain."""
    if targets.ndim > 2:
        return ", like masks or images to reproduce, which need another task than classification"
    if targets.dtype.kind not in "biuf" or targets.shape[1] < 2 or not np.isin(targets, (0, 1)).all():
        return ""
    ones = targets.sum(axis=1)
    if (ones == 1).all():
        return ", with a single 1 in each row (one-hot), for which labels.argmax(axis=1) has the classes"
    return ", with several ones in a row, which need task 'multilabel'" if (ones > 1).any() else ""


def check_inputs(inputs: object, spec: InputSpec, origin: str, storage: Storage | None = None) -> Inputs:
    """Convert a user's array to contiguous inputs, with the same errors.

    Features of other floating-point types are converted; pixels must be uint8, since the range of others is ambiguous.
    Mapped inputs stay mapped.
    """
    raw = np.asarray(inputs)
    if spec.dtype != raw.dtype and raw.dtype.kind in ("iu" if spec.kind == "tokens" else "f"):
        raw = _converted(raw, spec, storage)
    if raw.dtype != np.dtype(spec.dtype):
        raise InvalidInput(
            f"inputs of {origin} have dtype {raw.dtype}; the model takes {spec.dtype}",
            field="dtype of inputs",
            value=str(raw.dtype),
        )
    if raw.shape[1:] != spec.shape or raw.ndim == 0:
        expected = ", ".join(["N", *map(str, spec.shape)])
        raise InvalidInput(
            f"inputs of {origin} have shape {list(raw.shape)}; the model takes [{expected}]",
            field="shape of inputs",
            value=list(raw.shape),
        )
    if spec.kind == "tokens" and raw.size and not (raw.min() >= 0 and raw.max() < len(spec.vocabulary)):
        raise InvalidInput(
            f"inputs of {origin} hold token {raw.max() if raw.min() >= 0 else raw.min()}; the vocabulary has "
            f"{len(spec.vocabulary)} tokens, 0 to {len(spec.vocabulary) - 1}",
            field="token",
        )
    if raw.dtype.kind == "f" and not _finite(raw):
        raise InvalidInput(f"inputs of {origin} hold NaN or infinite values; all must be finite")
    return np.require(raw, requirements=["C"] if is_mapped(raw) else ["C", "W"])


def _converted(raw: Inputs, spec: InputSpec, storage: Storage | None) -> Inputs:
    if spec.dtype == "uint8":
        return raw
    with np.errstate(over="ignore"):  # becomes infinite, which is rejected later
        if not is_mapped(raw) or raw.ndim == 0:
            return raw.astype(spec.dtype)
        rows = (storage or Storage()).rows("inputs", raw.shape[1:], spec.dtype, len(raw))
        for part in chunks(raw):
            rows.append(part.astype(spec.dtype))
    return rows.array()


def _finite(values: Inputs) -> bool:
    return all(bool(np.isfinite(part).all()) for part in chunks(values))
