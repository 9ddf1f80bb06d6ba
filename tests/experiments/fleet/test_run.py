"""The virtual fleet: a simulation's files, failures, resumption and results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import psutil
import pytest

from moonfed.blobs.tensors import open_model
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_FILE, WEIGHTS_FILE
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import open_storage
from moonfed.errors import InvalidInput, NotFound
from moonfed.experiments import datasets
from moonfed.experiments.datasets import load_dataset, split_arrays
from moonfed.experiments.fleet import preparation
from moonfed.experiments.fleet.plot import draw_result
from moonfed.experiments.fleet.results import SimulatedRound
from moonfed.experiments.fleet.run import SimulationProgress, SimulationReporter, party_model, run_simulation
from moonfed.experiments.simulation import from_document
from moonfed.export.binding import bind
from moonfed.export.scoring import Predictor
from tests.support.compiled import cached_bundle
from tests.support.quick_simulations import QUICK, TWO, rows
from tests.support.refusals import refused
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow


def test_a_simulation_leaves_its_rounds_model_and_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "build_bundle", cached_bundle)  # with its graph
    told: list[SimulationProgress] = []
    simulation = make_simulation(name="mine", dataset="digits", method="moon", **QUICK)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO, progress=told.append)

    found = rows(tmp_path / "a")
    assert [row["round"] for row in found] == [1, 2]
    for row, entry in zip(found, result.rounds, strict=True):
        measured = {name: getattr(entry, name) for name in ("loss", "seconds", "metrics", "party_seconds")}
        measured["accuracy"] = entry.score
        assert set(entry.metrics) == {"train_loss"}
        about = {"name": "mine", "dataset": "digits", "method": "moon", "seed": 1, "round": entry.round}
        assert row.items() >= (about | measured).items()
        assert row["recipe"] == simulation.to_document()
        assert entry.seconds > 0
        assert entry.party_seconds > 0
    data = load_dataset("digits", None)
    assert result.counts.sum() == len(data.train.labels)
    assert result.model is not None
    manifest = read_bundle(result.bundle).manifest
    graph = bind(
        (result.bundle / GRAPH_FILE).read_bytes(), np.array(open_model(result.model, manifest.tensors)), manifest
    )
    score = Predictor(graph).score(data.test)  # independent of the plan
    assert result.score == pytest.approx(score.value)
    assert result.rounds[-1].loss == pytest.approx(score.metrics["loss"], rel=1e-4)
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["accuracy"] == result.score
    assert [progress.fraction for progress in told] == sorted(progress.fraction for progress in told)
    assert (told[0].fraction, told[-1].fraction, told[-1].score) == (0.0, 1.0, result.rounds[-1])
    last = open_model(party_model(tmp_path / "a", "party-2"), manifest.tensors)
    assert party_model(tmp_path / "a", "party-2").parent.name == "2-1"
    assert np.abs(last - open_model(result.model, manifest.tensors)).max() > 1e-4
    with pytest.raises(NotFound, match="no model of 'party-4'"):
        party_model(tmp_path / "a", "party-4")
    draw_result(result)
    assert (tmp_path / "a" / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_progress_has_the_score_of_the_newest_model_in_any_order_of_scores() -> None:
    told: list[SimulationProgress] = []
    reporter = SimulationReporter(told.append, rounds=3)
    for round_, score in ((2, 0.5), (1, 0.25), (3, 0.75)):
        reporter.scored(SimulatedRound(round=round_, score=score, loss=1.0, seconds=1.0, metrics={}))
    assert [progress.score.score for progress in told if progress.score] == [0.5, 0.5, 0.75]


def test_a_finished_simulation_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = make_simulation(dataset="wine", model="mlp", **QUICK)
    first = run_simulation(simulation, tmp_path / "a", engine=TWO)
    monkeypatch.setattr("moonfed.experiments.fleet.run.open_engine", None)
    again = run_simulation(simulation, tmp_path / "a")
    assert (again.rounds, again.model) == (first.rounds, first.model)
    renamed = make_simulation(name="other", dataset="wine", model="mlp", **QUICK)
    assert run_simulation(renamed, tmp_path / "a").rounds == first.rounds
    assert {row["name"] for row in rows(tmp_path / "a")} == {"other"}
    with refused(InvalidInput, "seed", "1"):
        run_simulation(make_simulation(dataset="wine", model="mlp", **(QUICK | {"seed": 2})), tmp_path / "a")
    slower = make_simulation(
        dataset="wine", model="mlp", **(QUICK | {"settings": {**QUICK["settings"], "momentum": 0.5}})
    )
    with refused(InvalidInput, "settings.momentum", "not given"):
        run_simulation(slower, tmp_path / "a")


def test_a_thousand_parties_with_a_fifth_per_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(10_100) % 4
    inputs = (generator.normal(size=(10_100, 6)) + labels[:, None]).astype(np.float32)
    toy = split_arrays("toy", ("a", "b", "c", "d"), (inputs[100:], labels[100:]), (inputs[:100], labels[:100]))
    monkeypatch.setitem(datasets.LOADERS, "toy", lambda _root, _download: toy)
    simulation = make_simulation(
        dataset="toy",
        model="mlp",
        method="scaffold",
        partition="iid",
        parties=1000,
        cohort="20%",
        rounds=2,
        settings={"epochs": 1, "batch_size": 8},
    )
    before = psutil.Process().memory_info().rss
    result = run_simulation(simulation, tmp_path / "a", data=tmp_path, engine=TWO)
    assert psutil.Process().memory_info().rss - before < 200e6
    assert len(result.rounds) == 2
    with open_storage(tmp_path / "a" / "coordinator") as directory:
        cohorts = [record.counted for record in directory.store.past_rounds("simulation", None, 10)]
    assert [len(cohort) for cohort in cohorts] == [200, 200]
    assert 20 <= len(set(cohorts[0]) & set(cohorts[1])) <= 60  # 40 are expected of two draws


@pytest.mark.parametrize(
    ("up", "down", "most_bytes", "most_difference"),
    [("int8", "bfloat16+zstd", 0.27, 0.05), ("rotated4", "float32", 0.15, 0.2), ("rotated1", "float32", 0.06, 0.7)],
)
def test_parties_may_exchange_encoded_models_and_learn_the_same(
    up: str, down: str, most_bytes: float, most_difference: float, tmp_path: Path
) -> None:
    models = {}
    for name, encodings in (("plain", ("float32", "float32")), ("encoded", (up, down))):
        simulation = make_simulation(
            dataset="digits",
            method="scaffold",
            uplink_encoding=encodings[0],
            downlink_encoding=encodings[1],
            **QUICK,
        )
        result = run_simulation(simulation, tmp_path / name, engine=TWO)
        specs = read_bundle(result.bundle).manifest.tensors
        with open_storage(tmp_path / name / "coordinator") as directory:
            reports = directory.store.reports.of_attempt(AttemptId(run="simulation", round=2, attempt=1))
        assert result.model
        sent = [report.blobs["model"].size / result.model.stat().st_size for report in reports]
        assert all(ratio <= most_bytes for ratio in sent) == (name == "encoded")
        models[name] = np.array(open_model(result.model, specs))
    start = np.array(open_model(tmp_path / "plain" / "bundle" / WEIGHTS_FILE, specs))
    difference = np.linalg.norm(models["encoded"] - models["plain"])
    assert 0 < difference < most_difference * np.linalg.norm(models["plain"] - start)


def test_a_simulation_with_another_optimiser_stops_early_as_its_run_would(tmp_path: Path) -> None:
    keys = {"dataset": "digits-features", "model": "mlp", "optimiser": "adamw", "parties": 3, "rounds": 30}
    simulation = make_simulation(name="early", target_metrics={"accuracy": 0.5}, settings={"epochs": 2}, **keys)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    accuracies = [row["accuracy"] for row in rows(tmp_path / "a")]
    assert accuracies[-1] >= 0.5
    assert max(accuracies[:-2], default=0.0) < 0.5  # one round may be committed before the score of the last is known
    assert len(accuracies) < 30
    assert read_bundle(result.bundle).manifest.plan.optimiser == "adamw"


def test_a_simulation_with_privacy_is_drawn_charged_and_repeated(tmp_path: Path) -> None:
    keys = {"cohort": "3", "population": 4, "clip_norm": 1.0, "privacy": {"epsilon": 9, "delta": 0.1}, "quorum": "1"}
    document = {"dataset": "digits", "method": "fedavg", "parties": 4, "rounds": 2, "train_samples": 200, **keys}
    simulation = from_document({"name": "private", **document}, ["epochs=1", "seed=3"])
    for name in ("a", "b"):
        run_simulation(simulation, tmp_path / name, engine=TWO)
        spent = json.loads((tmp_path / name / "summary.json").read_text())["privacy"]
        assert (spent["releases"], spent["rounds"], spent["budget"], spent["sampling_rate"]) == (2, 2, 9, 0.75)
        assert 8 < spent["epsilon"] <= 9
        assert all(row["metrics"] == {} for row in rows(tmp_path / name)), "devices' losses stay with them"
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert models[0] == models[1], "its secret follows from the seed"
