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
from moonfed.data.table_spec import TableSpec
from moonfed.errors import InvalidInput

Inputs = npt.NDArray[Any]  # uint8 [N, height, width, channels] or float32 [N, width]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Samples in the bundle's form, with their labels, the names of the classes, and the columns that they come from.

    `targets`: the labels [N], positions in `classes`; None: the source has none. `origin`: the source, for messages.
    """

    inputs: Inputs  # [N, …]
    targets: Labels | None
    classes: tuple[str, ...]
    table: TableSpec | None = None  # the columns of a table
    origin: str = "the data"
    file: Path | None = None  # which holds all samples
    files: tuple[Path, ...] = ()  # one for each sample
    rows: Rows | None = None  # of a table: their numbers in the file
    notes: tuple[str, ...] = ()  # sentences about what the source has left out, or used only in part

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def labels(self) -> Labels:
        """The labels; InvalidInput if the source has none."""
        if self.targets is None:
            raise InvalidInput(f"{self.origin} has no labels, which are needed", field="labels")
        return self.targets

    def take(self, rows: Rows) -> DataSet:
        """Return a copy of some samples."""
        targets = None if self.targets is None else self.targets[rows]
        files = tuple(self.files[row] for row in rows) if self.files else ()
        numbers = None if self.rows is None else self.rows[rows]
        return replace(self, inputs=self.inputs[rows], targets=targets, files=files, rows=numbers)

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
    labels: object | None,
    spec: InputSpec,
    classes: Sequence[str],
    origin: str,
    file: Path | None = None,
    files: Sequence[Path] = (),
    notes: tuple[str, ...] = (),
) -> DataSet:
    """Convert a user's arrays to samples; InvalidInput names the field, what was found and what is allowed.

    `labels`: None if the source has none. `origin`: the file or function that they came from, for the message.
    """
    raw = check_inputs(inputs, spec, origin)
    return DataSet(
        inputs=raw,
        targets=None if labels is None else check_labels(labels, len(raw), classes, origin),
        classes=tuple(classes),
        table=spec.table,
        origin=origin,
        file=file,
        files=tuple(files),
        notes=notes,
    )


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
        return ", like images to reproduce, but models here are classifiers"
    if targets.dtype.kind not in "biuf" or targets.shape[1] < 2 or not np.isin(targets, (0, 1)).all():
        return ""
    ones = targets.sum(axis=1)
    if (ones == 1).all():
        return ", with a single 1 in each row (one-hot), for which labels.argmax(axis=1) has the classes"
    return ", with several ones in a row (multi-label), but a model here predicts one class" if (ones > 1).any() else ""


def check_inputs(inputs: object, spec: InputSpec, origin: str) -> Inputs:
    """Convert a user's array to contiguous inputs, with the same errors.

    Features of other floating-point types are converted; pixels must be uint8, since the range of others is ambiguous.
    """
    raw = np.asarray(inputs)
    if spec.kind == "features" and raw.dtype.kind == "f":
        with np.errstate(over="ignore"):  # becomes infinite, which is rejected below
            raw = raw.astype(spec.dtype, copy=False)
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
    if raw.dtype.kind == "f" and not np.isfinite(raw).all():
        raise InvalidInput(f"inputs of {origin} hold NaN or infinite values; all must be finite")
    return np.require(raw, requirements=["C", "W"])
