"""Reads data to calibrate an int8 variant on, and sees to it that no test data are among them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moonfed.blobs import ref_of_file
from moonfed.errors import InvalidInput
from moonfed.files import require_file
from moonfed.manifest import InputSpec
from moonfed.samples import Inputs, read_inputs

USED_AT_MOST = 512  # samples, evenly spread over the file: more barely move the ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Raw samples [N, …] to calibrate on, and the sha256 of the file that they are from."""

    inputs: Inputs
    sha256: str


def read_calibration(path: Path, spec: InputSpec, test: Inputs, test_sha256: str) -> Calibration:
    """The `inputs` of an .npz file, at most 512 of them.

    Raises NotFound without the file, InvalidInput if it is the file of the test data, if one of its samples is among
    them, or if it holds none: a variant that has seen the test data would look better on them than it is.
    """
    require_file("calibration", path)
    inputs, sha256 = read_inputs(path, spec), ref_of_file(path).sha256
    if len(inputs) == 0:
        raise InvalidInput(f"calibration is {str(path)!r}, which holds no samples; at least one is needed")
    if sha256 == test_sha256:
        raise InvalidInput(f"calibration is {str(path)!r}, which is the very test data; it must be other data")
    _require_apart(inputs, test, path)
    stride = -(-len(inputs) // USED_AT_MOST)
    return Calibration(inputs=inputs[::stride], sha256=sha256)


def _require_apart(inputs: Inputs, test: Inputs, path: Path) -> None:
    tested = {sample.tobytes() for sample in test}
    shared = [position for position, sample in enumerate(inputs) if sample.tobytes() in tested]
    if shared:
        raise InvalidInput(
            f"calibration is {str(path)!r}; {len(shared)} of its {len(inputs)} samples, such as that at "
            f"position {shared[0]}, are among the test data, and none may be"
        )
