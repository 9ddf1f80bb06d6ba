"""Updates of parties, and stragglers, which do part of their work, drawn uniformly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.tensors import open_model
from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.storage.opening import open_storage
from moonfed.experiments.attendance import draw_stragglers, partial_steps
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.run import run_simulation
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"settings": {"epochs": 1, "batch_size": 32}, "parties": 3, "rounds": 2, "seed": 1}


TWO = EngineSettings(workers=2)


def test_stragglers_do_only_a_part_of_their_work_and_still_count(tmp_path: Path) -> None:
    keys = QUICK | {"parties": 4, "rounds": 3, "settings": {"epochs": 4, "batch_size": 8, "mu": 0.1}}
    simulation = make_simulation(dataset="wine", model="mlp", method="fedprox", stragglers=0.5, **keys)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    whole = {f"party-{number}": 4 * max(1, size // 8) for number, size in enumerate(result.counts.sum(axis=1), start=1)}
    partial: list[str] = []
    with open_storage(tmp_path / "a" / "coordinator") as directory:
        for record in directory.store.past_rounds("simulation", None, 10):
            assert len(record.counted) == 4
            reports = directory.store.reports.of_attempt(record.id)
            fewer = [report.device for report in reports if report.steps < whole[report.device]]
            assert len(fewer) <= 2
            assert all(1 <= report.steps <= whole[report.device] for report in reports)
            partial += fewer
    assert len(partial) >= 3  # of the six who might also have drawn all of their steps


def test_parties_clip_their_change_and_send_no_metrics_in_a_run_with_privacy(tmp_path: Path) -> None:
    privacy = {"epsilon": 90, "delta": 0.1, "noise_multiplier": 1.0}
    private = {"cohort": "3", "population": 3, "clip_norm": 0.002, "privacy": privacy, "quorum": "1"}
    simulation = make_simulation(dataset="wine", model="mlp", **QUICK | {"rounds": 1} | private)
    run_simulation(simulation, tmp_path / "a", engine=TWO)
    manifest = Manifest.from_bytes((tmp_path / "a" / "bundle" / "manifest.json").read_bytes())

    def values(path: Path) -> npt.NDArray[np.float64]:
        return open_model(path, manifest.tensors).astype(np.float64)

    start = values(tmp_path / "a" / "bundle" / "initial.safetensors")
    rounds = sorted((tmp_path / "a" / "parties").glob("*/runs/*/1-1"))
    assert len(rounds) == 3
    for found in rounds:
        assert np.linalg.norm(values(found / "encoded_model.safetensors") - start) == pytest.approx(0.002, rel=1e-3)
        assert np.linalg.norm(values(found / "model.safetensors") - start) > 0.004
    with open_storage(tmp_path / "a" / "coordinator") as directory:
        (record,) = directory.store.past_rounds("simulation", None, 10)
        assert [dict(report.metrics) for report in directory.store.reports.of_attempt(record.id)] == [{}] * 3


def test_stragglers_are_drawn_evenly_in_every_round() -> None:
    cohort = tuple(f"party-{number}" for number in range(10))
    draws = [draw_stragglers(cohort, 0.3, 5, round_) for round_ in range(1000)]
    assert all(len(set(draw)) == 3 for draw in draws)
    times = [sum(name in draw for draw in draws) for name in cohort]
    assert max(abs(number - 300) for number in times) < 5 * (1000 * 0.3 * 0.7) ** 0.5
    steps = [partial_steps(8, 5, round_, "party-1") for round_ in range(2000)]
    assert set(steps) == set(range(1, 9))
    assert abs(np.mean(steps) - 4.5) < 5 * (63 / 12 / 2000) ** 0.5
