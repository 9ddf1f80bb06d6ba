"""Whether an encoding of what comes up costs any of what is learned, beside what chance does.

Simulations on the digits end with accuracies that have come to rest (`RECIPE`, chosen from float32 alone, with other
seeds): before that they jump from round to round, and the last one says more about chance than about encodings. A
seed's simulations differ in the encoding alone; one more begins with weights that are off by a millionth, which shows
how far apart two trainings end between which there is no difference that anybody would call one.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, say
from moonfed.blobs import ref_of_bytes
from moonfed.bundle import Bundle, read_bundle, write_bundle
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.state_directory import open_state
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.preparation import prepare
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import Simulation
from moonfed.manifest import MANIFEST_FILE, MODEL, WEIGHTS_FILE
from moonfed.tensors import Vector, file_size, open_model, write_model

SEEDS, WORKERS, LAST = 5, 2, 10
RECIPE = Simulation(
    dataset="digits",
    parties=5,
    rounds=40,
    beta=5.0,
    settings={"epochs": 2, "batch_size": 32, "learning_rate": 0.05},
)
NOISE = 1e-6  # of each weight that the disturbed simulation begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to train."""

    name: str
    up: str
    disturbed: bool = False


PLAIN = Side(name="float32", up="float32")
DISTURBED = Side(name="weights a millionth off", up="float32", disturbed=True)
BFLOAT16 = Side(name="bfloat16 up", up="bfloat16")
INT8 = Side(name="int8 up", up="int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a simulation came to."""

    accuracies: Sequence[float]  # percent, by round
    size: float  # of an update's model, over that of the float32 file


def measure_learning(seeds: int = SEEDS, rounds: int = RECIPE.rounds) -> list[Figure]:
    recipe = replace(RECIPE, rounds=rounds)
    sides = (PLAIN, DISTURBED, BFLOAT16, INT8)
    learned = {side.name: [_learned(replace(recipe, seed=seed), side) for seed in range(seeds)] for side in sides}
    last = {name: [one.accuracies[-1] for one in found] for name, found in learned.items()}
    size = max(one.size for one in learned[INT8.name])
    restless = statistics.fmean(statistics.pstdev(one.accuracies[-LAST:]) for one in learned[PLAIN.name])
    return [
        *(
            Figure(name=f"digits, final accuracy, {name}", value=statistics.fmean(found), unit="%")
            for name, found in last.items()
        ),
        Figure(name=f"float32: standard deviation of the last {LAST} rounds", value=restless, unit="points"),
        *_lost(last, DISTURBED),
        *_lost(last, BFLOAT16),
        *_lost(last, INT8, at_most=0.5),
        Figure(name="bytes up, int8 / float32", value=size, unit="times", at_most=0.27),
    ]


def _lost(last: Mapping[str, Sequence[float]], side: Side, at_most: float | None = None) -> list[Figure]:
    """The mean over seeds of what a side ends below float32, and that mean's standard error."""
    lost = [plain - other for plain, other in zip(last[PLAIN.name], last[side.name], strict=True)]
    error = statistics.stdev(lost) / math.sqrt(len(lost)) if len(lost) > 1 else 0.0
    return [
        Figure(name=f"accuracy lost to {side.name}", value=statistics.fmean(lost), unit="points", at_most=at_most),
        Figure(name=f"accuracy lost to {side.name}: standard error", value=error, unit="points"),
    ]


def _learned(recipe: Simulation, side: Side) -> Learned:
    say(f"digits, seed {recipe.seed}, {side.name}")
    simulation = replace(recipe, uplink_encoding=side.up)
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "simulation"
        if side.disturbed:
            prepare(simulation, Layout(output), None, lambda _: None)
            write_bundle(Layout(output).bundle, disturbed(read_bundle(Layout(output).bundle), recipe.seed))
        result = run_simulation(simulation, output, engine=EngineSettings(workers=WORKERS))
        plain = file_size(read_bundle(result.bundle).manifest.tensors)
        with open_state(Layout(output).coordinator) as state:
            newest = AttemptId(run=RUN, round=simulation.rounds, attempt=1)
            sent = [answer.blobs[MODEL].size for answer in state.store.answers.of(newest)]
    found = Learned(accuracies=[100 * scored.accuracy for scored in result.rounds], size=statistics.fmean(sent) / plain)
    say(f"accuracy {found.accuracies[-1]:.2f} %, bytes {found.size:.4f} of float32's")
    return found


def disturbed(bundle: Bundle, seed: int) -> Bundle:
    """The bundle with each initial weight moved by about a millionth of itself, up or down."""
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
