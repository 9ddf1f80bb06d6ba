"""The cost of privacy when a round closes: clipped changes on a grid and noise, against the weighted mean."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.schema import TensorSpec, model_size
from moonfed.blobs.store import ref_of_bytes, ref_of_file
from moonfed.blobs.tensors import write_model
from moonfed.bundle.manifest import FILES, MODEL, InputSpec, Manifest, PlanSpec
from moonfed.bundle.target import class_target
from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.draw import SECRET_BYTES, Draw
from moonfed.coordinator.privacy.mechanism import PrivateRound
from moonfed.plan.training_spec import TrainingSpec

VALUES = 11_200_000  # of a model: 44.8 MB, in four layers
DEVICES, TURNS = 10, 9
CLIP = 1.0  # a third of the norm of the changes
MOST_ADDED = 1.0  # seconds


def measure_privacy(values: int = VALUES, turns: int = TURNS) -> Tables:
    """Reduce the same round with privacy and without, in turns; files are in the page cache."""
    with tempfile.TemporaryDirectory() as directory:
        plain, private = _rounds(Path(directory), values)
        progress(f"reducing {DEVICES} updates of {4 * values / 1e6:.1f} MB with privacy and without")
        pairs = [(_seconds(plain, Path(directory)), _seconds(private, Path(directory))) for _ in range(turns)]
    for index, (clock, most) in enumerate((("wall time", MOST_ADDED), ("processor time", None))):
        without = [turn[0][index] for turn in pairs]
        with_privacy = [turn[1][index] for turn in pairs]
        added = [one - other for one, other in zip(with_privacy, without, strict=True)]
        yield [
            Figure(name=f"{clock} without privacy", value=statistics.median(without), unit="s"),
            Figure(name=f"{clock} with privacy", value=statistics.median(with_privacy), unit="s"),
            Figure(name=f"{clock} added by privacy", value=statistics.median(added), unit="s", at_most=most),
        ]


def _seconds(closed: ClosedRound, directory: Path) -> tuple[float, float]:
    """Return the wall and processor time of a round's aggregation."""
    started, worked = time.perf_counter(), time.process_time()
    aggregate(closed, directory)
    return time.perf_counter() - started, time.process_time() - worked


def _rounds(directory: Path, values: int) -> tuple[ClosedRound, ClosedRound]:
    """Write a model and updates whose changes are noise; return their round without privacy and with it."""
    specs = tuple(TensorSpec(f"layer{number}.weight", (values // 4,), "parameter") for number in range(4))
    generator, size = np.random.default_rng(0), model_size(specs)

    def write(name: str, model: np.typing.NDArray[np.float32]) -> Path:
        write_model(directory / name, specs, [model])
        return directory / name

    begun = generator.normal(0, 0.05, size).astype(np.float32)
    start, contributions = write("start", begun), []
    for number in range(DEVICES):
        trained = write(f"device-{number}", begun + generator.normal(0, 0.001, size).astype(np.float32))
        sha256 = ref_of_file(trained).sha256
        contributions.append(
            Contribution(device=f"device-{number}", files={MODEL: trained}, samples=100, steps=1, sha256=sha256)
        )
    plain = ClosedRound(
        manifest=_manifest(specs),
        round=1,
        draw=Draw(bytes(SECRET_BYTES)),
        enrolled=DEVICES,
        global_state={MODEL: start},
        contributions=tuple(contributions),
        cohort=DEVICES,
    )
    privacy = PrivateRound(attempt=1, sampling_rate=0.1, expected=DEVICES, noise_multiplier=1.0, clip=CLIP, sigma_b=1.0)
    return plain, replace(plain, privacy=privacy, global_sha256=ref_of_file(start).sha256)


def _manifest(specs: tuple[TensorSpec, ...]) -> Manifest:
    return Manifest(
        name="privacy",
        model="mlp",
        method="fedavg",
        previous_models=0,
        training=TrainingSpec(epochs=1, batch_size=32, hyperparameters={"learning_rate": 0.1}),
        input=InputSpec(kind="features", shape=(1,)),
        target=class_target(("a", "b")),
        tensors=specs,
        plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.4", activation_bytes=0),
        files={name: ref_of_bytes(b"") for name in FILES},
    )
