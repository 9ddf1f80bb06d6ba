"""Tensors of a model's file, as plans take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from moonfed.blobs.tensors import TensorSpec, Vector, open_model, split


def read_tensors(file: Path, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
    """Return a file's tensors in the manifest's order; SchemaMismatch if it holds others."""
    vector: Vector = np.array(open_model(file, specs))  # writable, as torch requires
    return [torch.from_numpy(values) for values in split(vector, specs).values()]
