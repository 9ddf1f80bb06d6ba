"""Training without any exchange: each party alone, and all samples in one place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import PLAN_FILE, WEIGHTS_FILE
from moonfed.edge_client.training.local_training import RoundSettings, Samples, evaluate, train_round
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.fleet.plot import draw_result
from moonfed.experiments.fleet.run import party_model, run_simulation
from moonfed.experiments.partition import partition
from moonfed.experiments.simulation import Simulation
from moonfed.plan.interface import load_plan
from tests.support.quick_simulations import QUICK, TWO, rows
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow


def test_solo_equals_training_each_party_alone(tmp_path: Path) -> None:
    keys = QUICK | {"settings": {"epochs": 6, "batch_size": 16, "learning_rate": 0.005}}
    simulation = make_simulation(dataset="digits", method="solo", **keys)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert result.model is None
    assert [entry.party for entry in result.parties] == ["party-1", "party-2", "party-3"]
    accuracies = [alone(result.bundle, simulation, number) for number in (1, 2, 3)]
    assert [entry.score for entry in result.parties] == pytest.approx(accuracies)
    assert result.score == pytest.approx(float(np.mean(accuracies)))
    assert result.spread == pytest.approx(float(np.std(accuracies)))
    assert [row["party"] for row in rows(tmp_path / "a")] == ["party-1", "party-2", "party-3"]
    draw_result(result)

    # As if it had been killed before the third party was scored, and while the second one trained.
    lines = (tmp_path / "a" / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "a" / "results.jsonl").write_text(lines[0])
    (tmp_path / "a" / "summary.json").unlink()
    second, third = (party_model(tmp_path / "a", name) for name in ("party-2", "party-3"))
    second.unlink()
    trained = third.stat().st_mtime_ns
    again = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert [entry.score for entry in again.parties] == [entry.score for entry in result.parties]
    assert third.stat().st_mtime_ns == trained
    assert second.is_file()


def test_pooled_samples_are_trained_as_one_partys(tmp_path: Path) -> None:
    keys = QUICK | {"settings": {"epochs": 3, "batch_size": 16, "learning_rate": 0.005}, "rounds": 1}
    simulation = make_simulation(dataset="digits", method="pooled", **keys)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert len(result.counts) == 1
    assert result.counts.sum() == len(load_dataset("digits", None).train.labels)
    assert [row["round"] for row in rows(tmp_path / "a")] == [1]
    assert {row["method"] for row in rows(tmp_path / "a")} == {"pooled"}
    assert result.score == pytest.approx(alone(result.bundle, simulation, 1))
    single = make_simulation(dataset="digits", method="fedavg", partition="iid", **(keys | {"parties": 1}))
    other = run_simulation(single, tmp_path / "b", engine=TWO)
    assert result.model is not None
    assert other.model is not None
    assert result.model.read_bytes() == other.model.read_bytes()


def alone(bundle: Path, simulation: Simulation, number: int) -> float:
    """Train the party on its own data in this process, and return its accuracy."""
    torch.set_num_threads(1)
    data = load_dataset("digits", None)
    part = partition(data.train.labels, simulation.partition_settings)[number - 1]
    manifest = read_bundle(bundle).manifest
    weights = split(np.array(open_model(bundle / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    plan = load_plan(bundle / PLAN_FILE, "cpu")
    train_round(
        plan,
        Samples(inputs=torch.from_numpy(data.train.inputs[part]), targets=torch.from_numpy(data.train.labels[part])),
        model=[torch.from_numpy(weights[spec.name]) for spec in manifest.tensors],
        previous_models=[],
        received={},
        settings=RoundSettings(
            training=replace(manifest.training, epochs=simulation.method_settings.training.epochs, batch_size=16),
            seed=simulation.run.seed,
            round=1,
            device=f"party-{number}",
        ),
    )
    test = Samples(inputs=torch.from_numpy(data.test.inputs), targets=torch.from_numpy(data.test.labels))
    return evaluate(plan, test, 64).score
