"""Calibration data for int8 variants, kept separate from the test data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moonfed.blobs import ref_of_file
from moonfed.errors import InvalidInput
from moonfed.files import require_file
from moonfed.manifest import InputSpec
from moonfed.samples import Inputs, read_inputs

MAX_SAMPLES = 512  # evenly spread over the file; more barely change the ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Raw samples [N, …] to calibrate on, and the sha256 of their file."""

    inputs: Inputs
    sha256: str


def read_calibration(path: Path, spec: InputSpec, test: Inputs, test_sha256: str) -> Calibration:
    """Read the `inputs` of an .npz file, at most 512 of them.

    Raises NotFound without the file, InvalidInput if it is empty, is the test file or contains a test sample: a variant
    calibrated on test data would look better on it than it is.
    """
    require_file("calibration", path)
    inputs, sha256 = read_inputs(path, spec), ref_of_file(path).sha256
    if len(inputs) == 0:
        raise InvalidInput(f"calibration is {str(path)!r}, which holds no samples; at least one is needed")
    if sha256 == test_sha256:
        raise InvalidInput(f"calibration is {str(path)!r}, which is the test data; it must be different data")
    _require_disjoint(inputs, test, path)
    stride = -(-len(inputs) // MAX_SAMPLES)
    return Calibration(inputs=inputs[::stride], sha256=sha256)


def _require_disjoint(inputs: Inputs, test: Inputs, path: Path) -> None:
    tested = {sample.tobytes() for sample in test}
    shared = [position for position, sample in enumerate(inputs) if sample.tobytes() in tested]
    if shared:
        raise InvalidInput(
            f"calibration is {str(path)!r}; {len(shared)} of its {len(inputs)} samples, such as the one at "
            f"position {shared[0]}, are in the test data, and none may be"
        )
