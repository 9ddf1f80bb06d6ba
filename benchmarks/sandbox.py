"""Cost of the sandbox: a round of local training, and the start of the training process, with and without it.

Both sides are the device's own reader and trainer; without the sandbox (`--sandbox off`) only resource limits remain.
They alternate, every second pair in reverse order. Where a process's memory happens to lie changes the speed of all its
rounds, so rounds are measured in several pairs of processes; ratios and differences are medians over the pairs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.store import BlobDirectory
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.agent.worker_process import FILE_HEADER, WorkerProcess
from moonfed.edge_client.job import Job
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.fleet.assignment import AttemptId
from moonfed.sandbox.messages import encode
from moonfed.sandbox.policy import Level, available_level

LEVELS: tuple[Level, ...] = ("strict", "off")
SAMPLES, EPOCHS = 640, 5
PAIRS, ROUNDS, STARTS = 60, 4, 7  # of processes, of rounds in each, and of starts
ROUND = Figure(name="a round in the sandbox / without it", unit="times", at_most=1.02)
START = Figure(name="start of the training process in the sandbox, later than without it", unit="ms", at_most=50)


def measure_sandbox(pairs: int = PAIRS, rounds: int = ROUNDS, starts: int = STARTS, epochs: int = EPOCHS) -> Tables:
    """Measure both figures and the underlying times, with `rounds` in each of `pairs` of processes."""
    if available_level() != "strict":
        yield [replace(figure, reason="this kernel has no Landlock") for figure in (ROUND, START)]
        return
    with tempfile.TemporaryDirectory() as directory:
        devices = {level: _device(Path(directory, level), level) for level in LEVELS}
        try:
            yield _measure_rounds(devices, _jobs(Path(directory), epochs), pairs, rounds)
            yield _measure_starts(devices, starts)
        finally:
            for device in devices.values():
                device.end()


def _measure_rounds(
    devices: Mapping[Level, WorkerProcess], job: Callable[[int], Job], pairs: int, rounds: int
) -> list[Figure]:
    progress(f"sandbox: {rounds} rounds with and without it, in each of {pairs} pairs of processes")
    number = dict.fromkeys(LEVELS, 0)

    def train(level: Level) -> None:
        number[level] += 1
        if not devices[level].train(job(number[level]), lambda _: True):
            raise RuntimeError("the round was not trained")

    seconds: dict[Level, list[float]] = {level: [] for level in LEVELS}
    for _ in range(pairs):
        for level in LEVELS:
            train(level)  # untimed: starts the processes
        for level, measured in _alternate(train, rounds).items():
            seconds[level].append(statistics.median(measured))
        for device in devices.values():
            device.end()
    return [
        *(Figure(name=f"a round, --sandbox {level}", value=statistics.median(seconds[level]), unit="s")
          for level in LEVELS),
        replace(ROUND, value=statistics.median(a / b for a, b in zip(*seconds.values(), strict=True))),
    ]  # fmt: skip


def _measure_starts(devices: Mapping[Level, WorkerProcess], starts: int) -> list[Figure]:
    progress(f"sandbox: {starts} starts with and without it")

    def start(level: Level) -> None:
        child = devices[level]._new_trainer(FILE_HEADER, 0)
        child.answer(encode("check"), "ready")
        child.end()

    seconds = _alternate(start, starts)
    differences = [a - b for a, b in zip(*seconds.values(), strict=True)]
    return [
        *(Figure(name=f"a start, --sandbox {level}", value=statistics.median(seconds[level]), unit="s")
          for level in LEVELS),
        replace(START, value=1e3 * statistics.median(differences)),
    ]  # fmt: skip


def _alternate(run: Callable[[Level], None], turns: int) -> Mapping[Level, list[float]]:
    seconds: dict[Level, list[float]] = {level: [] for level in LEVELS}
    for turn in range(turns):
        for level in LEVELS if turn % 2 == 0 else reversed(LEVELS):
            began = time.perf_counter()
            run(level)
            seconds[level].append(time.perf_counter() - began)
    return seconds


def _device(directory: Path, level: Level) -> WorkerProcess:
    directory.mkdir()
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (SAMPLES, 32, 32, 3), dtype=np.uint8)
    np.savez(directory / "data.npz", inputs=inputs, labels=np.arange(SAMPLES) % 10)
    return WorkerProcess(
        WorkerSettings(
            state=str(directory),
            device="benchmark",
            data=str(directory / "data.npz"),
            accelerator="cpu",
            holdout=0.0,
            sandbox=level,
        )
    )


def _jobs(directory: Path, epochs: int) -> Callable[[int], Job]:
    """Return a function that makes the job of a round from its number."""
    recipe = BundleRecipe(
        name="benchmark",
        model="cnn",
        input=InputSpec(kind="image", shape=(32, 32, 3)),
        target=class_target(tuple("abcdefghij")),
        method="moon",
    )
    bundle: Bundle = build_bundle(recipe)
    blobs = BlobDirectory(directory / "blobs")
    files = {name: str(blobs.path(blobs.put_bytes(content).sha256)) for name, content in bundle.contents.items()}
    training = replace(bundle.manifest.training, epochs=epochs, batch_size=64)
    return lambda number: Job(
        id=AttemptId(run="benchmark", round=number, attempt=1),
        training=training,
        seed=1,
        digest="0" * 64,
        manifest_file=files[MANIFEST_FILE],
        plan_file=files[PLAN_FILE],
        files={"model": files[WEIGHTS_FILE]},
    )
