"""Overhead of the virtual fleet: a simulated round against its optimiser steps alone.

Ten parties hold 50,000 random images of CIFAR-10's shape, unevenly distributed; a round is ten epochs of the CNN. The
baseline takes the same number of steps with the same plan, in two single-threaded processes.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import torch

from benchmarks.report import Figure, Tables
from moonfed.bundle import read_bundle
from moonfed.experiments.datasets import LOADERS, DataSet
from moonfed.experiments.fleet.data import read_counts
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import Simulation
from moonfed.manifest import PLAN_FILE, WEIGHTS_FILE
from moonfed.plan import load_plan
from moonfed.tensors import open_model, split

NAME = "random-32x32x3"
SAMPLES, PARTIES, EPOCHS, BATCH, WORKERS = 50_000, 10, 10, 64, 2
WARM_UP = 5


def measure_fleet(repetitions: int = 3, samples: int = SAMPLES) -> Tables:
    LOADERS[NAME] = lambda _root, _download: _random_images(samples)
    rounds, steps = [], []
    for repetition in range(repetitions):  # alternating, to spread interference evenly
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "simulation"
            rounds.append(_round_seconds(output, seed=repetition))
            steps.append(_bare_seconds(output))
    fleet, bare = statistics.median(rounds), statistics.median(steps)
    yield [
        Figure(name="a round of 10 parties on the virtual fleet", value=fleet, unit="s"),
        Figure(name="its optimiser steps alone, two processes", value=bare, unit="s"),
        Figure(name="round / steps", value=statistics.median(np.divide(rounds, steps).tolist()), unit="times",
               at_most=1.15),
    ]  # fmt: skip


def _random_images(samples: int) -> DataSet:
    generator = np.random.default_rng(0)
    tests = samples // 5
    return DataSet(
        name=NAME,
        train_inputs=generator.integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8),
        train_labels=np.arange(samples) % 10,
        test_inputs=generator.integers(0, 256, (tests, 32, 32, 3), dtype=np.uint8),
        test_labels=np.arange(tests) % 10,
        classes=tuple("abcdefghij"),
    )


def _round_seconds(output: Path, seed: int) -> float:
    """Time the second of two rounds: TorchScript optimises in the first, whose model is scored during the second."""
    settings = {"epochs": EPOCHS, "batch_size": BATCH}
    simulation = Simulation(dataset=NAME, parties=PARTIES, rounds=2, settings=settings, seed=seed)
    result = run_simulation(simulation, output, data=output, engine=EngineSettings(workers=WORKERS))
    return result.rounds[-1].seconds


def _bare_seconds(output: Path) -> float:
    """Time the same number of steps, split evenly between the processes."""
    sizes = read_counts(Layout(output).data).sum(axis=1).tolist()
    total = sum(EPOCHS * max(1, size // BATCH) for size in sizes)
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
    plan.begin_round(model, [], {}, manifest.training.hyperparameters)
    inputs = torch.randint(0, 256, (BATCH, *manifest.input.shape), dtype=torch.uint8)
    labels, empty, draws = torch.randint(0, 10, (BATCH,)), torch.empty(0), torch.empty(BATCH, 0)
    for _ in range(WARM_UP):
        plan.step(inputs, labels, empty, draws)
    start.wait()
    started = time.perf_counter()
    for _ in range(steps):
        plan.step(inputs, labels, empty, draws)
    durations.put(time.perf_counter() - started)
