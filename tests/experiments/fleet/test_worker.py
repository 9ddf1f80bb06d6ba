"""A worker's failures end the simulation with their reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.errors import TrainingFailed
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.preparation import Source, prepare
from moonfed.experiments.fleet.run import SimulationProgress, run_simulation
from tests.support.quick_simulations import QUICK, TWO, rows
from tests.support.simulation_workers import workers
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow


def test_a_party_that_fails_ends_the_simulation_with_its_reason(tmp_path: Path) -> None:
    simulation = make_simulation(dataset="wine", model="mlp", **(QUICK | {"settings": {"epochs": 2, "batch_size": 8}}))
    prepare(simulation, Layout(tmp_path / "a"), Source(), lambda _: None)
    inputs = np.load(tmp_path / "a" / "data" / "train-inputs.npy", mmap_mode="r+")
    inputs[:10] = np.nan  # the first party's
    inputs.flush()
    with pytest.raises(TrainingFailed, match="party-1: local training diverged"):
        run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert workers() == []


def test_a_worker_that_dies_ends_the_simulation_which_can_then_go_on(tmp_path: Path) -> None:
    simulation = make_simulation(dataset="digits", **(QUICK | {"settings": {"epochs": 8, "batch_size": 32}}))

    def kill(progress: SimulationProgress) -> None:
        if progress.sentence.startswith("round 1 of 2: 1 of 3"):
            for worker in workers():
                worker.kill()

    with pytest.raises(TrainingFailed, match=r"party-\d: a worker process was killed by SIGKILL"):
        run_simulation(simulation, tmp_path / "a", engine=TWO, progress=kill)
    assert workers() == []
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert [row["round"] for row in rows(tmp_path / "a")] == [1, 2]
    assert result.rounds[0].score > 0.1
