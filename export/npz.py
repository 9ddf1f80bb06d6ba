"""Reads test data from a .npz: `inputs` [N, …], raw samples as the manifest describes them, and `labels` [N]."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput, NotFound
from moonfed.manifest import InputSpec, Manifest

Samples = npt.NDArray[Any]  # uint8 [N, H, W, C] or float32 [N, F]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TestData:
    """Samples with their classes."""

    __test__ = False  # not a test, whatever pytest makes of the name

    inputs: Samples
    labels: Labels


def read_test_data(path: Path, manifest: Manifest) -> TestData:
    """Samples and labels; InvalidInput names what does not fit the manifest, NotFound a missing file."""
    with _opened(path) as archive:
        inputs = _inputs(archive, path, manifest.input)
        labels = _array(archive, path, "labels")
    if labels.dtype.kind not in "iu":
        raise InvalidInput(f"labels in {path} have dtype {labels.dtype}; they must be whole numbers")
    if labels.shape != (len(inputs),):
        raise InvalidInput(
            f"labels in {path} have shape {labels.shape}; it must be ({len(inputs)},), one for each input"
        )
    for value in (labels.min(), labels.max()):
        if not 0 <= value < len(manifest.classes):
            raise InvalidInput(f"labels in {path} hold {value}; they must be from 0 to {len(manifest.classes) - 1}")
    return TestData(inputs, labels.astype(np.int64))


def read_inputs(path: Path, sample: InputSpec) -> Samples:
    """Samples without their labels; the same errors."""
    with _opened(path) as archive:
        return _inputs(archive, path, sample)


def _opened(path: Path) -> np.lib.npyio.NpzFile:
    if not path.is_file():
        raise NotFound(f"there is no test data {path}")
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path} is not a .npz file") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InvalidInput(f"{path} is not a .npz file but a single array")
    return archive


def _inputs(archive: np.lib.npyio.NpzFile, path: Path, sample: InputSpec) -> Samples:
    inputs = _array(archive, path, "inputs")
    if inputs.dtype != sample.dtype:
        raise InvalidInput(f"inputs in {path} have dtype {inputs.dtype}; it must be {sample.dtype}")
    if inputs.shape[1:] != sample.shape:
        raise InvalidInput(f"inputs in {path} have shape {inputs.shape}; it must be (N, {_listed(sample.shape)})")
    if len(inputs) == 0:
        raise InvalidInput(f"inputs in {path} hold no samples; at least one is needed")
    if not np.isfinite(inputs).all():
        raise InvalidInput(f"inputs in {path} hold NaN or infinite values; all must be finite")
    return inputs


def _array(archive: np.lib.npyio.NpzFile, path: Path, key: str) -> npt.NDArray[Any]:
    if key not in archive:
        raise InvalidInput(f"{path} has no array {key!r}; it holds {', '.join(archive.files) or 'nothing'}")
    try:
        array: npt.NDArray[Any] = archive[key]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"array {key!r} in {path} cannot be read: {error}") from error
    return array


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(side) for side in shape)
