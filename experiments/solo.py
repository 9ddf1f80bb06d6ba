"""SOLO: what each device reaches alone, without any exchange (the lower end of the papers' tables)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.bundle import read_bundle
from moonfed.manifest import PLAN_FILE, WEIGHTS_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloTraining:
    """One device's training from the bundle's initial weights on its own samples."""

    bundle: Path
    samples: Path  # .npz with inputs and labels
    test: Path
    epochs: int
    seed: int


def train_solo(bundle: Path, samples: Sequence[Path], test: Path, *, epochs: int, seed: int) -> list[float]:
    """Accuracy of each device's own model on the whole test set; one single-threaded process per core."""
    jobs = [SoloTraining(bundle=bundle, samples=path, test=test, epochs=epochs, seed=seed) for path in samples]
    context = multiprocessing.get_context("spawn")
    # Leaving a Pool ends its processes at once, also in the middle of their work.
    with context.Pool(min(len(jobs), os.cpu_count() or 1), initializer=_leave_interrupts_to_the_parent) as pool:
        return pool.map(_train, jobs, chunksize=1)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _train(job: SoloTraining) -> float:
    import numpy as np
    import torch

    from edge_client.training import RoundSettings, Samples, evaluate, train_round
    from moonfed.plan import load_plan
    from moonfed.samples import read_npz
    from moonfed.tensors import open_model, split

    torch.set_num_threads(1)
    manifest = read_bundle(job.bundle).manifest
    weights = split(open_model(job.bundle / WEIGHTS_FILE, manifest.tensors), manifest.tensors)
    model = [torch.from_numpy(np.array(weights[spec.name])) for spec in manifest.tensors]
    settings = RoundSettings(
        epochs=job.epochs,
        batch_size=manifest.training.batch_size,
        hyperparameters=manifest.hyperparameters,
        seed=job.seed,
        round=1,
        device=job.samples.stem,
    )

    def read(path: Path) -> Samples:
        raw = read_npz(path, manifest.input, manifest.classes)
        return Samples(inputs=torch.from_numpy(raw.inputs), labels=torch.from_numpy(raw.labels))

    plan = load_plan(job.bundle / PLAN_FILE, "cpu")
    train_round(plan, read(job.samples), model=model, previous_models=[], settings=settings)
    return evaluate(plan, read(job.test), batch_size=256).accuracy
