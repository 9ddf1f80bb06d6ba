"""Accuracy cost of encoding updates, compared with the effect of chance.

The simulations on the digits run until their accuracy has converged (`DIGITS`, chosen from float32 alone, with other
seeds); before that it jumps from round to round, and a difference says more about chance than about the encoding. The
simulations of one seed differ only in the encoding. As a control, one more starts from weights that are off by a
millionth, which shows how far apart two practically identical trainings end. A CNN on part of Fashion-MNIST is still
learning when it ends; there, the mean over the last rounds is compared.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import Vector, file_size, open_model, write_model
from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.bundle.manifest import MANIFEST_FILE, MODEL, WEIGHTS_FILE
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import open_storage
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.preparation import Source, prepare
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import Simulation, from_document
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.export.model_zoo import PROJECTION
from moonfed.signing.key_files import open_signer

SEEDS, WORKERS, LAST = 5, 2, 10
COMMON: Mapping[str, Any] = {
    "projection": PROJECTION,
    "parties": 5,
    "beta": 5.0,
    "settings": {"epochs": 2, "batch_size": 32, "learning_rate": 0.05},
}
DIGITS = from_document({"dataset": "digits", "rounds": 40, **COMMON})
FASHION = from_document(
    {"dataset": "fashion-mnist", "train_samples": 5000, "test_samples": 5000, "rounds": 15, **COMMON}
)
NOISE = 1e-6  # relative, on each initial weight of the control


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingCase:
    """One simulated configuration."""

    name: str
    up: str
    perturbed: bool = False
    lost_at_most: float | None = None  # points
    bytes_at_most: float | None = None  # relative to float32's


PLAIN = EncodingCase(name="float32", up="float32")
CONTROL = EncodingCase(name="weights a millionth off", up="float32", perturbed=True)
BFLOAT16 = EncodingCase(name="bfloat16 up", up="bfloat16")
INT8 = EncodingCase(name="int8 up", up="int8", lost_at_most=0.5, bytes_at_most=0.27)
ROTATED4 = EncodingCase(name="rotated4 up", up="rotated4", lost_at_most=0.5)
ROTATED1 = EncodingCase(name="rotated1 up", up="rotated1", lost_at_most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Simulations of one data set that are compared with float32."""

    recipe: Simulation
    cases: Sequence[EncodingCase]
    final: int = 1  # the last rounds whose mean accuracy is compared


ON_DIGITS = Comparison(recipe=DIGITS, cases=(CONTROL, BFLOAT16, INT8, ROTATED4, ROTATED1))
ON_FASHION = Comparison(recipe=FASHION, cases=(INT8, ROTATED4, ROTATED1), final=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingOutcome:
    """Result of one simulation."""

    accuracies: Sequence[float]  # percent, by round
    final: float  # percent, the mean of the last rounds
    size: float  # of an update's model, relative to the float32 file


def measure_encodings_accuracy(root: Path | None, seeds: int = SEEDS, rounds: int | None = None) -> Tables:
    """Measure the digits and, if `root` has torchvision's files, Fashion-MNIST."""
    yield from _compare(ON_DIGITS, None, seeds, rounds)
    if root:
        yield from _compare(ON_FASHION, root, seeds, rounds)
    else:
        yield [Figure(name="fashion-mnist, final accuracy, float32", unit="%", reason="FASHION_MNIST names no folder")]


def _compare(comparison: Comparison, root: Path | None, seeds: int, rounds: int | None) -> Tables:
    recipe = comparison.recipe
    dataset = recipe.dataset
    runs = [replace(recipe.run, rounds=rounds or recipe.run.rounds, seed=seed) for seed in range(seeds)]

    def outcomes(case: EncodingCase) -> list[EncodingOutcome]:
        return [_simulate(replace(recipe, run=run), case, root, comparison.final) for run in runs]

    plain = outcomes(PLAIN)
    deviation = statistics.fmean(statistics.pstdev(one.accuracies[-LAST:]) for one in plain)
    name = f"{dataset}, float32: standard deviation of the last {LAST} rounds"
    yield [_final_accuracy(dataset, PLAIN, plain), Figure(name=name, value=deviation, unit="points")]
    for case in comparison.cases:
        found = outcomes(case)
        yield [_final_accuracy(dataset, case, found), *_lost(dataset, case, plain, found), _bytes(dataset, case, found)]


def _final_accuracy(dataset: str, case: EncodingCase, found: Sequence[EncodingOutcome]) -> Figure:
    value = statistics.fmean(one.final for one in found)
    return Figure(name=f"{dataset}, final accuracy, {case.name}", value=value, unit="%")


def _lost(
    dataset: str, case: EncodingCase, plain: Sequence[EncodingOutcome], found: Sequence[EncodingOutcome]
) -> list[Figure]:
    """Return the mean accuracy lost against float32 over the seeds, and its standard error."""
    lost = [one.final - other.final for one, other in zip(plain, found, strict=True)]
    error = statistics.stdev(lost) / math.sqrt(len(lost)) if len(lost) > 1 else 0.0
    name, mean = f"{dataset}, accuracy lost to {case.name}", statistics.fmean(lost)
    progress(f"{name}, by seed: {', '.join(f'{points:.2f}' for points in lost)}")
    return [
        Figure(name=name, value=mean, unit="points", at_most=case.lost_at_most),
        Figure(name=f"{name}: standard error", value=error, unit="points"),
    ]


def _bytes(dataset: str, case: EncodingCase, found: Sequence[EncodingOutcome]) -> Figure:
    size = max(one.size for one in found)
    return Figure(name=f"{dataset}, {case.name}: bytes / float32", value=size, unit="times", at_most=case.bytes_at_most)


def _simulate(recipe: Simulation, case: EncodingCase, root: Path | None, final: int) -> EncodingOutcome:
    progress(f"{recipe.dataset}, seed {recipe.run.seed}, {case.name}")
    simulation = replace(recipe, run=replace(recipe.run, uplink_encoding=case.up))
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "simulation"
        if case.perturbed:
            prepare(simulation, Layout(output), Source(), lambda _: None)
            perturbed = perturb(read_bundle(Layout(output).bundle), recipe.run.seed)
            signed = sign_new(perturbed, open_signer([], progress), SigningOptions())
            write_bundle(Layout(output).bundle, signed.bundle)
        result = run_simulation(simulation, output, data=root, engine=EngineSettings(workers=WORKERS))
        plain = file_size(read_bundle(result.bundle).manifest.tensors)
        with open_storage(Layout(output).coordinator) as state:
            newest = AttemptId(run=RUN, round=simulation.run.rounds, attempt=1)
            sent = [report.blobs[MODEL].size for report in state.store.reports.of_attempt(newest)]
    accuracies = [100 * scored.score for scored in result.rounds]
    found = EncodingOutcome(
        accuracies=accuracies, final=statistics.fmean(accuracies[-final:]), size=statistics.fmean(sent) / plain
    )
    progress(f"accuracy {found.final:.2f} %, bytes {found.size:.4f} of float32's")
    return found


def perturb(bundle: Bundle, seed: int) -> Bundle:
    """Return the bundle with each initial weight changed by about a millionth of itself, up or down."""
    specs = bundle.manifest.tensors
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / WEIGHTS_FILE
        file.write_bytes(bundle.contents[WEIGHTS_FILE])
        weights: Vector = np.array(open_model(file, specs))
        noise = np.random.default_rng(seed).normal(0, NOISE, weights.size)
        write_model(file, specs, [(weights * (1 + noise)).astype(np.float32)])
        content = file.read_bytes()
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, WEIGHTS_FILE: ref_of_bytes(content)})
    return Bundle(manifest, {**bundle.contents, WEIGHTS_FILE: content, MANIFEST_FILE: manifest.to_bytes()})
