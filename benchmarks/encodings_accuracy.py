"""Accuracy cost of encoding updates, compared with the effect of chance.

The simulations on the digits run until their accuracy has converged (`RECIPE`, chosen from float32 alone, with other
seeds); before that it jumps from round to round, and a difference says more about chance than about the encoding. The
simulations of one seed differ only in the encoding. As a control, one more starts from weights that are off by a
millionth, which shows how far apart two practically identical trainings end.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
RECIPE = from_document(
    {
        "dataset": "digits",
        "projection": PROJECTION,
        "parties": 5,
        "rounds": 40,
        "beta": 5.0,
        "settings": {"epochs": 2, "batch_size": 32, "learning_rate": 0.05},
    }
)
NOISE = 1e-6  # relative, on each initial weight of the control


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingCase:
    """One simulated configuration."""

    name: str
    up: str
    perturbed: bool = False


PLAIN = EncodingCase(name="float32", up="float32")
CONTROL = EncodingCase(name="weights a millionth off", up="float32", perturbed=True)
BFLOAT16 = EncodingCase(name="bfloat16 up", up="bfloat16")
INT8 = EncodingCase(name="int8 up", up="int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingOutcome:
    """Result of one simulation."""

    accuracies: Sequence[float]  # percent, by round
    size: float  # of an update's model, relative to the float32 file


def measure_encodings_accuracy(seeds: int = SEEDS, rounds: int = RECIPE.run.rounds) -> Tables:
    recipe = replace(RECIPE, run=replace(RECIPE.run, rounds=rounds))
    plain = _outcomes(recipe, PLAIN, seeds)
    deviation = statistics.fmean(statistics.pstdev(one.accuracies[-LAST:]) for one in plain)
    yield [
        _final_accuracy(PLAIN, plain),
        Figure(name=f"float32: standard deviation of the last {LAST} rounds", value=deviation, unit="points"),
    ]
    for case, at_most in ((CONTROL, None), (BFLOAT16, None), (INT8, 0.5)):
        found = _outcomes(recipe, case, seeds)
        yield [_final_accuracy(case, found), *_lost(case, plain, found, at_most)]
    size = max(one.size for one in found)  # of INT8, the last case
    yield [Figure(name="bytes up, int8 / float32", value=size, unit="times", at_most=0.27)]


def _outcomes(recipe: Simulation, case: EncodingCase, seeds: int) -> list[EncodingOutcome]:
    return [_simulate(replace(recipe, run=replace(recipe.run, seed=seed)), case) for seed in range(seeds)]


def _final_accuracy(case: EncodingCase, found: Sequence[EncodingOutcome]) -> Figure:
    value = statistics.fmean(one.accuracies[-1] for one in found)
    return Figure(name=f"digits, final accuracy, {case.name}", value=value, unit="%")


def _lost(
    case: EncodingCase, plain: Sequence[EncodingOutcome], found: Sequence[EncodingOutcome], at_most: float | None
) -> list[Figure]:
    """Return the mean accuracy lost against float32 over the seeds, and its standard error."""
    lost = [one.accuracies[-1] - other.accuracies[-1] for one, other in zip(plain, found, strict=True)]
    error = statistics.stdev(lost) / math.sqrt(len(lost)) if len(lost) > 1 else 0.0
    return [
        Figure(name=f"accuracy lost to {case.name}", value=statistics.fmean(lost), unit="points", at_most=at_most),
        Figure(name=f"accuracy lost to {case.name}: standard error", value=error, unit="points"),
    ]


def _simulate(recipe: Simulation, case: EncodingCase) -> EncodingOutcome:
    progress(f"digits, seed {recipe.run.seed}, {case.name}")
    simulation = replace(recipe, run=replace(recipe.run, uplink_encoding=case.up))
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "simulation"
        if case.perturbed:
            prepare(simulation, Layout(output), Source(), lambda _: None)
            perturbed = perturb(read_bundle(Layout(output).bundle), recipe.run.seed)
            signed = sign_new(perturbed, open_signer([], progress), SigningOptions())
            write_bundle(Layout(output).bundle, signed.bundle)
        result = run_simulation(simulation, output, engine=EngineSettings(workers=WORKERS))
        plain = file_size(read_bundle(result.bundle).manifest.tensors)
        with open_storage(Layout(output).coordinator) as state:
            newest = AttemptId(run=RUN, round=simulation.run.rounds, attempt=1)
            sent = [report.blobs[MODEL].size for report in state.store.reports.of_attempt(newest)]
    found = EncodingOutcome(
        accuracies=[100 * scored.score for scored in result.rounds], size=statistics.fmean(sent) / plain
    )
    progress(f"accuracy {found.accuracies[-1]:.2f} %, bytes {found.size:.4f} of float32's")
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
