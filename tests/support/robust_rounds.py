"""Rounds of generated updates for robust aggregation, and references in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.control.run_settings import RunSettings
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from tests.support.aggregation_rounds import SIZE, Rounds, make_manifest, robust_reducers

F64 = npt.NDArray[np.float64]
START = 0.5
SLICES = [5, 50, 1 << 20]  # elements: of one device's coordinate, of a few, of everything


def rounds(
    directory: Path, robust: RunSettings, rule: ServerRule | None = None, slice_elements: int = 1 << 20
) -> Rounds:
    manifest = make_manifest(server_rule=rule or MeanRule())
    start = np.full(SIZE, START, np.float32)
    return Rounds(directory, manifest, start, slice_elements=slice_elements, robust=robust)


def updates(seed: int, devices: int, spread: float = 1.0) -> F64:
    """Return models near a common one, as stored in float32 files."""
    chance = np.random.default_rng(seed)
    models = START + chance.normal(size=SIZE) + spread * chance.normal(size=(devices, SIZE))
    return models.astype(np.float32).astype(np.float64)


def assert_close(found: F64, expected: F64, rtol: float = 2e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)  # files hold float32


ROBUST = robust_reducers(byzantine=2)
NAMES = [robust.reducer for robust in ROBUST]
