"""A simulation's round against nothing but its optimiser steps: what the virtual fleet costs beside the training.

Ten parties hold 50,000 random pictures of CIFAR-10's shape, unevenly; a round is ten epochs of the CNN. The other side
takes as many steps with the same plan, in two single-threaded processes that do nothing else.
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

from benchmarks.report import Figure
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


def measure_fleet(repetitions: int = 3, samples: int = SAMPLES) -> list[Figure]:
    LOADERS[NAME] = lambda _root, _download: _random_pictures(samples)
    rounds, steps = [], []
    for repetition in range(repetitions):  # the sides take turns, so that the machine's moods hit both
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "simulation"
            rounds.append(_round_seconds(output, seed=repetition))
            steps.append(_bare_seconds(output))
    fleet, bare = statistics.median(rounds), statistics.median(steps)
    return [
        Figure(name="a round of 10 parties on the virtual fleet", value=fleet, unit="s"),
        Figure(name="its optimiser steps alone, two processes", value=bare, unit="s"),
        Figure(name="round / steps", value=statistics.median(np.divide(rounds, steps).tolist()), unit="times",
               at_most=1.15),
    ]  # fmt: skip


def _random_pictures(samples: int) -> DataSet:
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
    """The second of two rounds: TorchScript optimises in the first; and the first one's model is scored meanwhile."""
    settings = {"epochs": EPOCHS, "batch_size": BATCH}
    simulation = Simulation(dataset=NAME, parties=PARTIES, rounds=2, settings=settings, seed=seed)
    result = run_simulation(simulation, output, data=output, engine=EngineSettings(workers=WORKERS))
    return result.rounds[-1].seconds


def _bare_seconds(output: Path) -> float:
    """The same number of steps, shared evenly between the processes."""
    sizes = read_counts(Layout(output).data).sum(axis=1).tolist()
    total = sum(EPOCHS * max(1, size // BATCH) for size in sizes)
    context = multiprocessing.get_context("spawn")
    start, taken = context.Barrier(WORKERS), context.Queue()
    processes = [
        context.Process(target=_take_steps, args=(Layout(output).bundle, total // WORKERS, start, taken))
        for _ in range(WORKERS)
    ]
    for process in processes:
        process.start()
    seconds: float = max(taken.get() for _ in processes)
    for process in processes:
        process.join()
    return seconds


def _take_steps(bundle: Path, steps: int, start: Barrier, taken: Queue[float]) -> None:
    torch.set_num_threads(1)
    manifest = read_bundle(bundle).manifest
    weights = split(np.array(open_model(bundle / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    plan = load_plan(bundle / PLAN_FILE, "cpu")
    model = [torch.from_numpy(weights[spec.name]) for spec in manifest.tensors]
    plan.begin_round(model, [], {}, manifest.hyperparameters)
    inputs = torch.randint(0, 256, (BATCH, *manifest.input.shape), dtype=torch.uint8)
    labels, empty, draws = torch.randint(0, 10, (BATCH,)), torch.empty(0), torch.empty(BATCH, 0)
    for _ in range(WARM_UP):
        plan.step(inputs, labels, empty, draws)
    start.wait()
    started = time.perf_counter()
    for _ in range(steps):
        plan.step(inputs, labels, empty, draws)
    taken.put(time.perf_counter() - started)
