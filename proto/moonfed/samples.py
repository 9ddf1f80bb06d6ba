"""Raw samples, as they go into a plan and into an ONNX graph: arrays or an .npz file, checked against a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput
from moonfed.files import require_file
from moonfed.manifest import InputSpec

Inputs = npt.NDArray[Any]  # uint8 [N, height, width, channels] or float32 [N, width]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSamples:
    """Inputs [N, …] in the bundle's dtype, and labels [N]: positions in the bundle's class names."""

    inputs: Inputs
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: npt.NDArray[np.intp]) -> RawSamples:
        """Return a copy of some samples."""
        return RawSamples(inputs=self.inputs[index], labels=self.labels[index])


def check_samples(inputs: object, labels: object, spec: InputSpec, classes: Sequence[str], where: str) -> RawSamples:
    """Convert a user's arrays to samples; InvalidInput names the field, what was found and what is allowed.

    `where`: the file or function that they came from, for the message.
    """
    raw, targets = check_inputs(inputs, spec, where), np.asarray(labels)
    if targets.dtype.kind not in "iu":
        raise InvalidInput(f"labels of {where} have dtype {targets.dtype}; they must be whole numbers")
    if targets.shape != raw.shape[:1]:
        shape = list(targets.shape)
        raise InvalidInput(f"labels of {where} have shape {shape}; there must be one for each of the {len(raw)} inputs")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < len(classes)):
        raise InvalidInput(
            f"labels of {where} reach from {targets.min()} to {targets.max()}; "
            f"the bundle has {len(classes)} classes, 0 to {len(classes) - 1}"
        )
    return RawSamples(inputs=raw, labels=targets.astype(np.int64))


def check_inputs(inputs: object, spec: InputSpec, where: str) -> Inputs:
    """Convert a user's array to contiguous inputs, with the same errors.

    Features of other floating-point types are converted; pixels must be uint8, since the range of others is ambiguous.
    """
    raw = np.asarray(inputs)
    if spec.kind == "features" and raw.dtype.kind == "f":
        with np.errstate(over="ignore"):  # becomes infinite, which is rejected below
            raw = raw.astype(spec.dtype, copy=False)
    if raw.dtype != np.dtype(spec.dtype):
        raise InvalidInput(f"inputs of {where} have dtype {raw.dtype}; the bundle takes {spec.dtype}")
    if raw.shape[1:] != spec.shape or raw.ndim == 0:
        expected = ", ".join(["N", *map(str, spec.shape)])
        raise InvalidInput(f"inputs of {where} have shape {list(raw.shape)}; the bundle takes [{expected}]")
    if raw.dtype.kind == "f" and not np.isfinite(raw).all():
        raise InvalidInput(f"inputs of {where} hold NaN or infinite values; all must be finite")
    return np.require(raw, requirements=["C", "W"])


def read_npz(path: Path, spec: InputSpec, classes: Sequence[str]) -> RawSamples:
    """Return the `inputs` and `labels` of an .npz file. Pickled arrays are never opened.

    Raises NotFound if there is none, InvalidInput for one that is damaged or does not fit the bundle.
    """
    with _opened(path) as archive:
        inputs, labels = (_array(archive, field, path) for field in ("inputs", "labels"))
    return check_samples(inputs, labels, spec, classes, str(path))


def read_inputs(path: Path, spec: InputSpec) -> Inputs:
    """Return the `inputs` of an .npz file alone; the same errors."""
    with _opened(path) as archive:
        return check_inputs(_array(archive, "inputs", path), spec, str(path))


def has_labels(path: Path) -> bool:
    """Return whether an .npz file also holds labels; the same errors."""
    with _opened(path) as archive:
        return "labels" in archive.files


@contextmanager
def _opened(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    require_file("data", path)
    with path.open("rb") as file:  # numpy leaves a damaged one open
        try:
            archive = np.load(file, allow_pickle=False)
        except Exception as error:  # numpy and zipfile raise many kinds of errors for damaged files
            raise InvalidInput(f"{path} is not an .npz file, or a damaged one") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InvalidInput(f"{path} holds a single array; it must be an .npz file with named ones")
        yield archive


def _array(archive: np.lib.npyio.NpzFile, field: str, path: Path) -> object:
    if field not in archive.files:
        raise InvalidInput(f"{path} has no field {field!r}, which is needed; found {archive.files}")
    try:
        return archive[field]
    except Exception as error:  # pickled objects or damage, reported as many kinds of errors
        raise InvalidInput(f"{field} of {path} cannot be read: they are objects, or damaged") from error
