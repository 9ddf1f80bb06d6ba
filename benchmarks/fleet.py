"""Overhead of the virtual fleet: a simulated round against its optimiser steps alone, and next to Flower's engine.

Ten parties hold 50,000 random images of CIFAR-10's shape, unevenly distributed, and train the CNN. The baseline takes
the same number of steps with the same plan, in two single-threaded processes. Flower is measured if the environment
variable FLOWER_PYTHON names a Python with flwr[simulation] and torch, whose dependencies conflict with moonfed's.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import torch

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import PLAN_FILE, WEIGHTS_FILE
from moonfed.experiments.datasets import AUGMENTATIONS, LOADERS, SplitDataSet, split_arrays
from moonfed.experiments.fleet.data import read_counts
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import Simulation, from_document
from moonfed.export.model_zoo import PROJECTION
from moonfed.plan.interface import load_plan

NAME = "random-32x32x3"
PARTIES, BATCH, WORKERS, WARM_UP = 10, 64, 2, 5
FLOWER_PYTHON = os.environ.get("FLOWER_PYTHON", "")
FLOWER_ROUNDS = 4  # the first of them starts the workers


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScale:
    """Size of the benchmark."""

    repetitions: int = 3
    samples: int = 50_000
    epochs: int = 10
    flower_epochs: int = 2


def measure_fleet(scale: FleetScale = FleetScale()) -> Tables:
    LOADERS[NAME] = lambda _root, _download: _random_images(scale.samples)
    AUGMENTATIONS[NAME] = AUGMENTATIONS["cifar10"]
    yield _overhead("FedAvg", _simulation("fedavg", scale.epochs, augmentation=False), scale.repetitions, 1.15)
    yield _overhead("MOON, fresh augmentation", _simulation("moon", scale.epochs), scale.repetitions, None)
    yield _next_to_flower(_simulation("fedavg", scale.flower_epochs, augmentation=False), scale.repetitions)


def _simulation(method: str, epochs: int, *, augmentation: bool = True) -> Simulation:
    """Describe two rounds: TorchScript optimises in the first, whose model is scored during the second."""
    settings = {"epochs": epochs, "batch_size": BATCH}
    keys = {
        "projection": PROJECTION,
        "parties": PARTIES,
        "rounds": 2,
        "settings": settings,
        "augmentation": augmentation,
    }
    return from_document({"dataset": NAME, "method": method, "projection": PROJECTION, **keys})


def _overhead(name: str, simulation: Simulation, repetitions: int, at_most: float | None) -> list[Figure]:
    progress(f"fleet: {name}, {repetitions} simulations, alternating with their steps alone")
    rounds, steps = [], []
    for _ in range(repetitions):  # alternating, to spread interference evenly
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "simulation"
            rounds.append(_round_seconds(simulation, output))
            steps.append(_bare_seconds(simulation, output))
    ratio = statistics.median(np.divide(rounds, steps).tolist())
    return [
        Figure(name=f"{name}: a round of {PARTIES} parties on the virtual fleet", value=statistics.median(rounds),
               unit="s"),
        Figure(name=f"{name}: its optimiser steps alone, two processes", value=statistics.median(steps), unit="s"),
        Figure(name=f"{name}: round / steps", value=ratio, unit="times", at_most=at_most),
    ]  # fmt: skip


def _next_to_flower(simulation: Simulation, repetitions: int) -> list[Figure]:
    """Alternate simulations with the same ones on Flower's engine."""
    epochs = simulation.settings["epochs"]
    names = [f"FedAvg, E = {epochs}: a round on {engine}" for engine in ("the virtual fleet", "Flower's engine")]
    if not FLOWER_PYTHON:
        return [Figure(name=name, unit="s", reason="FLOWER_PYTHON is not set") for name in names]
    progress(f"fleet: {repetitions} simulations, alternating with Flower's engine")
    ours, flowers = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "simulation"
            ours.append(_round_seconds(simulation, output))
            flowers.append(_flower_seconds(_sizes(output), int(epochs)))
    return [
        *(Figure(name=name, value=statistics.median(each), unit="s")
          for name, each in zip(names, (ours, flowers), strict=True)),
        Figure(name="Flower's round / ours", value=statistics.median(np.divide(flowers, ours).tolist()), unit="times"),
    ]  # fmt: skip


def _flower_seconds(sizes: Sequence[int], epochs: int) -> float:
    """Time a round of the same federation on Flower's engine: the median of those after the first."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent / "load"),
        "FLOWER_SIMULATION": json.dumps([sizes, epochs, FLOWER_ROUNDS]),
    }
    program = [FLOWER_PYTHON, "-m", "flower_simulation"]
    done = subprocess.run(program, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(seconds[1:])


def _random_images(samples: int) -> SplitDataSet:
    generator = np.random.default_rng(0)
    tests = samples // 5
    return split_arrays(
        NAME,
        tuple("abcdefghij"),
        (generator.integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8), np.arange(samples) % 10),
        (generator.integers(0, 256, (tests, 32, 32, 3), dtype=np.uint8), np.arange(tests) % 10),
    )


def _round_seconds(simulation: Simulation, output: Path) -> float:
    """Time the last round of a simulation."""
    return run_simulation(simulation, output, data=output, engine=EngineSettings(workers=WORKERS)).rounds[-1].seconds


def _sizes(output: Path) -> list[int]:
    sizes: list[int] = read_counts(Layout(output).data).sum(axis=1).tolist()
    return sizes


def _bare_seconds(simulation: Simulation, output: Path) -> float:
    """Time the same number of steps, split evenly between the processes."""
    total = sum(simulation.method_settings.training.epochs * max(1, size // BATCH) for size in _sizes(output))
    context = multiprocessing.get_context("spawn")
    start, durations = context.Barrier(WORKERS), context.Queue()
    processes = [
        context.Process(target=_run_steps, args=(Layout(output).bundle, total // WORKERS, start, durations))
        for _ in range(WORKERS)
    ]
    for process in processes:
        process.start()
    seconds: float = max(durations.get() for _ in processes)
    for process in processes:
        process.join()
    return seconds


def _run_steps(bundle: Path, steps: int, start: Barrier, durations: Queue[float]) -> None:
    torch.set_num_threads(1)
    manifest = read_bundle(bundle).manifest
    weights = split(np.array(open_model(bundle / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    plan = load_plan(bundle / PLAN_FILE, "cpu")
    model = [torch.from_numpy(weights[spec.name]) for spec in manifest.tensors]
    previous = [model] * manifest.previous_models
    plan.begin_round(model, previous, {}, manifest.training.hyperparameters)
    inputs = torch.randint(0, 256, (BATCH, *manifest.input.shape), dtype=torch.uint8)
    labels, empty = torch.randint(0, 10, (BATCH,)), torch.empty(0)
    draws = torch.rand(BATCH, plan.draws_per_sample())
    for _ in range(WARM_UP):
        plan.step(inputs, labels, empty, draws)
    start.wait()
    started = time.perf_counter()
    for _ in range(steps):
        plan.step(inputs, labels, empty, draws)
    durations.put(time.perf_counter() - started)
