"""Weights as arrays, and as the files that runs begin with."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from moonfed.blobs.schema import TensorSpec
from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.blobs.tensors import open_model, require_finite, split, write_model
from moonfed.errors import InvalidInput, NotFound, SchemaMismatch

Weights: TypeAlias = dict[str, npt.NDArray[np.float32]]
Initial: TypeAlias = str | Path | Mapping[str, npt.NDArray[np.float32]]  # a run, a .safetensors file, or tensors


def read_weights(content: bytes, specs: tuple[TensorSpec, ...]) -> Weights:
    """Return a model's tensors."""
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / "model"
        path.write_bytes(content)
        vector = np.array(open_model(path, specs), dtype=np.float32)
    return split(vector, specs)


def initial_file(
    initial: Path | Mapping[str, npt.NDArray[np.float32]], specs: tuple[TensorSpec, ...], scratch: Path
) -> dict[BlobRef, Path]:
    """Return a file with initial weights; `scratch`: a new file, for tensors."""
    path = initial if isinstance(initial, Path) else _written(initial, specs, scratch)
    if not path.is_file():
        raise NotFound(f"initial is {str(path)!r}; there is no such file")
    require_finite(open_model(path, specs), specs)
    return {ref_of_file(path): path}


def _written(given: Mapping[str, npt.NDArray[np.float32]], specs: tuple[TensorSpec, ...], path: Path) -> Path:
    """Write tensors as a model."""
    expected = {spec.name: spec.shape for spec in specs}
    if unknown := sorted(given.keys() ^ expected.keys()):
        raise SchemaMismatch(f"initial has other tensors than the bundle; the difference is {', '.join(unknown)}")
    for name, shape in expected.items():
        if np.shape(given[name]) != shape:
            raise InvalidInput(f"initial[{name!r}] has shape {np.shape(given[name])}; it must be {shape}")
    write_model(path, specs, (np.asarray(given[spec.name], dtype=np.float32).reshape(-1) for spec in specs))
    return path
