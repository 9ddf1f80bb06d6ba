"""Calibration data for int8 variants, kept separate from the test data."""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, TargetSpec
from moonfed.data.data_set import Inputs
from moonfed.data.source import IGNORED, Source
from moonfed.errors import InvalidInput

MAX_SAMPLES = 512  # evenly spread over the file; more barely change the ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Raw samples [N, …] to calibrate on, and their digest."""

    inputs: Inputs
    sha256: str


def read_calibration(
    data: Source, spec: InputSpec, test: Inputs, test_sha256: str, target: TargetSpec = NO_TARGET
) -> Calibration:
    """Read at most 512 samples; targets are ignored. `target`: what they are, which a function may need.

    Raises NotFound without the file, InvalidInput if it is empty, is the test file or contains a test sample: a variant
    calibrated on test data would look better on it than it is.
    """
    samples = data.read(spec, target, labels=IGNORED)
    inputs = samples.inputs
    sha256 = samples.sha256()
    path = samples.origin
    if len(inputs) == 0:
        raise InvalidInput(field="calibration", value=path, rest=", which holds no samples; at least one is needed")
    if sha256 == test_sha256:
        raise InvalidInput(field="calibration", value=path, rest=", which is the test data; it must be different data")
    _require_disjoint(inputs, test, path)
    stride = -(-len(inputs) // MAX_SAMPLES)
    return Calibration(inputs=inputs[::stride], sha256=sha256)


def _require_disjoint(inputs: Inputs, test: Inputs, path: str) -> None:
    tested = {sample.tobytes() for sample in test}
    shared = [position for position, sample in enumerate(inputs) if sample.tobytes() in tested]
    if shared:
        raise InvalidInput(
            field="calibration",
            value=path,
            rest=(
                f"; {len(shared)} of its {len(inputs)} samples, such as the one at position {shared[0]}, are "
                "in the test data, and none may be"
            ),
        )
