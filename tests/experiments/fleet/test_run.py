"""The virtual fleet: what a simulation leaves, and that it fails loudly, resumes, and computes what it says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from moonfed.bundle import read_bundle
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import open_storage
from moonfed.edge_client.training.local_training import RoundSettings, Samples, evaluate, train_round
from moonfed.edge_client.worker.messages import Job
from moonfed.errors import InvalidInput, NotFound, TrainingFailed
from moonfed.experiments import datasets
from moonfed.experiments.datasets import DataSet, load_dataset
from moonfed.experiments.fleet.engine import EngineSettings, Pool
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.parties import draw_stragglers, partial_steps
from moonfed.experiments.fleet.plot import draw_result
from moonfed.experiments.fleet.preparation import prepare
from moonfed.experiments.fleet.run import SimulationProgress, party_model, run_simulation
from moonfed.experiments.partition import partition
from moonfed.experiments.simulation import Simulation
from moonfed.export.binding import bind
from moonfed.export.scoring import Predictor
from moonfed.manifest import GRAPH_FILE, PLAN_FILE, WEIGHTS_FILE
from moonfed.plan import load_plan
from moonfed.tensors import open_model, split
from moonfed.training_spec import TrainingSpec

QUICK: dict[str, Any] = {"settings": {"epochs": 1, "batch_size": 32}, "parties": 3, "rounds": 2, "seed": 1}
TWO = EngineSettings(workers=2)


def rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


def test_a_simulation_leaves_its_rounds_its_model_and_what_it_was(tmp_path: Path) -> None:
    told: list[SimulationProgress] = []
    simulation = Simulation(name="mine", dataset="digits", method="moon", **QUICK)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO, progress=told.append)

    found = rows(tmp_path / "a")
    assert [row["round"] for row in found] == [1, 2]
    for row, entry in zip(found, result.rounds, strict=True):
        measured = {name: getattr(entry, name) for name in ("accuracy", "loss", "seconds", "metrics", "party_seconds")}
        assert set(entry.metrics) == {"train_loss"}
        about = {"recipe": "mine", "dataset": "digits", "method": "moon", "seed": 1, "round": entry.round}
        assert row == about | measured
        assert entry.seconds > 0
        assert entry.party_seconds > 0
    data = load_dataset("digits", None)
    assert result.counts.sum() == len(data.train_labels)
    assert result.model is not None
    manifest = read_bundle(result.bundle).manifest
    graph = bind(
        (result.bundle / GRAPH_FILE).read_bytes(), np.array(open_model(result.model, manifest.tensors)), manifest
    )
    score = Predictor(graph).score(data.test_inputs, data.test_labels)  # independent of the plan
    assert result.accuracy == pytest.approx(score.accuracy)
    assert result.rounds[-1].loss == pytest.approx(score.loss, rel=1e-4)
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["accuracy"] == result.accuracy
    assert [progress.fraction for progress in told] == sorted(progress.fraction for progress in told)
    assert (told[0].fraction, told[-1].fraction, told[-1].accuracy) == (0.0, 1.0, result.accuracy)
    last = open_model(party_model(tmp_path / "a", "party-2"), manifest.tensors)
    assert party_model(tmp_path / "a", "party-2").parent.name == "2-1"
    assert np.abs(last - open_model(result.model, manifest.tensors)).max() > 1e-4
    with pytest.raises(NotFound, match="no model of 'party-4'"):
        party_model(tmp_path / "a", "party-4")
    draw_result(result)
    assert (tmp_path / "a" / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_simulation_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(dataset="wine", model="mlp", **QUICK)
    first = run_simulation(simulation, tmp_path / "a", engine=TWO)
    monkeypatch.setattr("moonfed.experiments.fleet.run.open_engine", None)
    again = run_simulation(simulation, tmp_path / "a")
    assert (again.rounds, again.model) == (first.rounds, first.model)
    renamed = Simulation(name="other", dataset="wine", model="mlp", **QUICK)
    assert run_simulation(renamed, tmp_path / "a").rounds == first.rounds
    assert {row["recipe"] for row in rows(tmp_path / "a")} == {"other"}
    with pytest.raises(InvalidInput, match="holds a simulation whose seed is 1, not 2"):
        run_simulation(Simulation(dataset="wine", model="mlp", **(QUICK | {"seed": 2})), tmp_path / "a")
    slower = Simulation(dataset="wine", model="mlp", **(QUICK | {"settings": {**QUICK["settings"], "momentum": 0.5}}))
    with pytest.raises(
        InvalidInput, match=r"a simulation whose settings\.momentum is not given, not 0\.5; name another"
    ):
        run_simulation(slower, tmp_path / "a")


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInput, match="holds something else than a simulation"):
        run_simulation(Simulation(dataset="wine", model="mlp", **QUICK), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "cnn"}, "model is 'cnn' and input.kind 'features'"),
        ({"model": "mlp", "parties": 100}, "parties is 100; 142 training samples are enough for at most 14"),
        ({"model": "mlp", "train_samples": 143}, "train_samples is 143; the data set has 142"),
    ],
)
def test_what_the_data_rule_out_is_refused_before_anything_is_written(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        run_simulation(Simulation(dataset="wine", **(QUICK | keys)), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_party_that_fails_ends_the_simulation_with_its_reason(tmp_path: Path) -> None:
    simulation = Simulation(dataset="wine", model="mlp", **(QUICK | {"settings": {"epochs": 2, "batch_size": 8}}))
    prepare(simulation, Layout(tmp_path / "a"), None, lambda _: None)
    inputs = np.load(tmp_path / "a" / "data" / "train-inputs.npy", mmap_mode="r+")
    inputs[:10] = np.nan  # the first party's
    inputs.flush()
    with pytest.raises(TrainingFailed, match="party-1: local training diverged"):
        run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert psutil.Process().children() == []


def test_a_worker_that_dies_ends_the_simulation_which_can_then_go_on(tmp_path: Path) -> None:
    simulation = Simulation(dataset="digits", **(QUICK | {"settings": {"epochs": 15, "batch_size": 32}}))

    def kill(progress: SimulationProgress) -> None:
        if progress.sentence.startswith("round 1 of 2: 1 of 3"):
            for child in psutil.Process().children():
                child.kill()

    with pytest.raises(TrainingFailed, match=r"party-\d: a worker process was killed by SIGKILL"):
        run_simulation(simulation, tmp_path / "a", engine=TWO, progress=kill)
    assert psutil.Process().children() == []
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert [row["round"] for row in rows(tmp_path / "a")] == [1, 2]
    assert result.rounds[0].accuracy > 0.1


def test_solo_is_what_each_party_reaches_alone(tmp_path: Path) -> None:
    keys = QUICK | {"settings": {"epochs": 12, "batch_size": 16, "learning_rate": 0.005}}
    simulation = Simulation(dataset="digits", method="solo", **keys)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert result.model is None
    assert [entry.party for entry in result.parties] == ["party-1", "party-2", "party-3"]
    accuracies = [alone(result.bundle, simulation, number) for number in (1, 2, 3)]
    assert [entry.accuracy for entry in result.parties] == pytest.approx(accuracies)
    assert result.accuracy == pytest.approx(float(np.mean(accuracies)))
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
    assert [entry.accuracy for entry in again.parties] == [entry.accuracy for entry in result.parties]
    assert third.stat().st_mtime_ns == trained
    assert second.is_file()


def test_pooled_samples_are_trained_as_one_partys(tmp_path: Path) -> None:
    keys = QUICK | {"settings": {"epochs": 3, "batch_size": 16, "learning_rate": 0.005}, "rounds": 1}
    simulation = Simulation(dataset="digits", method="pooled", **keys)
    result = run_simulation(simulation, tmp_path / "a", engine=TWO)
    assert len(result.counts) == 1
    assert result.counts.sum() == len(load_dataset("digits", None).train_labels)
    assert [row["round"] for row in rows(tmp_path / "a")] == [1]
    assert {row["method"] for row in rows(tmp_path / "a")} == {"pooled"}
    assert result.accuracy == pytest.approx(alone(result.bundle, simulation, 1))
    single = Simulation(dataset="digits", method="fedavg", partition="iid", **(keys | {"parties": 1}))
    other = run_simulation(single, tmp_path / "b", engine=TWO)
    assert result.model is not None
    assert other.model is not None
    assert result.model.read_bytes() == other.model.read_bytes()


def alone(bundle: Path, simulation: Simulation, number: int) -> float:
    """The party's accuracy, trained here and now from its part of the data."""
    torch.set_num_threads(1)
    data = load_dataset("digits", None)
    part = partition(data.train_labels, simulation.partition_settings)[number - 1]
    manifest = read_bundle(bundle).manifest
    weights = split(np.array(open_model(bundle / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    plan = load_plan(bundle / PLAN_FILE, "cpu")
    train_round(
        plan,
        Samples(inputs=torch.from_numpy(data.train_inputs[part]), labels=torch.from_numpy(data.train_labels[part])),
        model=[torch.from_numpy(weights[spec.name]) for spec in manifest.tensors],
        previous_models=[],
        received={},
        settings=RoundSettings(
            training=replace(manifest.training, epochs=simulation.method_settings.training.epochs, batch_size=16),
            seed=simulation.seed,
            round=1,
            device=f"party-{number}",
        ),
    )
    test = Samples(inputs=torch.from_numpy(data.test_inputs), labels=torch.from_numpy(data.test_labels))
    return evaluate(plan, test, 64).accuracy


def test_what_the_parties_measure_is_in_the_results(tmp_path: Path) -> None:
    keys = QUICK | {"settings": QUICK["settings"] | {"measure_inexactness": 1}}
    run_simulation(Simulation(dataset="wine", model="mlp", method="fedprox", **keys), tmp_path / "a", engine=TWO)
    with open_storage(tmp_path / "a" / "coordinator") as directory:
        for row in rows(tmp_path / "a"):
            record = directory.store.round(AttemptId(run="simulation", round=row["round"], attempt=1))
            assert record is not None
            reports = directory.store.reports.of_attempt(record.id)
            told = [(report.samples, report.metrics["inexactness"]) for report in reports]
            mean = sum(samples * value for samples, value in told) / sum(samples for samples, _ in told)
            assert row["metrics"]["inexactness"] == pytest.approx(mean)
            assert 0 < mean < 10
        (tmp_path / "a" / "summary.json").unlink()  # as if it had been killed at the very end
    before = rows(tmp_path / "a")
    run_simulation(Simulation(dataset="wine", model="mlp", method="fedprox", **keys), tmp_path / "a", engine=TWO)
    assert rows(tmp_path / "a") == before


def test_stragglers_do_only_a_part_of_their_work_and_still_count(tmp_path: Path) -> None:
    keys = QUICK | {"parties": 4, "rounds": 3, "settings": {"epochs": 4, "batch_size": 8, "mu": 0.1}}
    simulation = Simulation(dataset="wine", model="mlp", method="fedprox", stragglers=0.5, **keys)
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


def test_stragglers_are_drawn_anew_and_evenly() -> None:
    cohort = tuple(f"party-{number}" for number in range(10))
    draws = [draw_stragglers(cohort, 0.3, 5, round_) for round_ in range(1000)]
    assert all(len(set(draw)) == 3 for draw in draws)
    times = [sum(name in draw for draw in draws) for name in cohort]
    assert max(abs(number - 300) for number in times) < 5 * (1000 * 0.3 * 0.7) ** 0.5
    steps = [partial_steps(8, 5, round_, "party-1") for round_ in range(2000)]
    assert set(steps) == set(range(1, 9))
    assert abs(np.mean(steps) - 4.5) < 5 * (63 / 12 / 2000) ** 0.5


def test_a_thousand_parties_of_whom_a_fifth_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(10_100) % 4
    inputs = (generator.normal(size=(10_100, 6)) + labels[:, None]).astype(np.float32)
    toy = DataSet(
        name="toy",
        train_inputs=inputs[100:],
        train_labels=labels[100:],
        test_inputs=inputs[:100],
        test_labels=labels[:100],
        classes=("a", "b", "c", "d"),
    )
    monkeypatch.setitem(datasets.LOADERS, "toy", lambda _root, _download: toy)
    simulation = Simulation(
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


class Recorder:
    """A worker that notes what it is given."""

    def __init__(self) -> None:
        self.parties: list[int] = []

    async def do(self, kind: str, fields: Mapping[str, Any]) -> Mapping[str, float]:
        self.parties.append(fields["party"] if kind == "train" else 0)
        await asyncio.sleep(0)
        return {"seconds": 1.0}


def test_the_largest_party_goes_first_and_scoring_last() -> None:
    job = Job(
        id=AttemptId(run="r", round=1, attempt=1),
        training=TrainingSpec(epochs=1, batch_size=1),
        seed=0,
        digest="",
        manifest_file="",
        plan_file="",
        files={},
    )

    async def order() -> list[int]:
        worker = Recorder()
        pool = Pool([worker])
        jobs = [pool.train(party, job, size) for party, size in ((1, 30), (2, 50), (3, 40), (4, 50))]
        await asyncio.gather(pool.evaluate(Path("model")), *jobs)
        await pool.close()
        return worker.parties

    assert asyncio.run(order()) == [2, 4, 3, 1, 0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "slurm"}, "engine is 'slurm'; it must be 'processes' or 'ray'"),
        ({"workers": 0}, "workers is 0"),
        ({"device": "tpu"}, "device is 'tpu'; it must be 'cpu' or 'cuda'"),
    ],
)
def test_a_wrong_engine_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EngineSettings(**keys)


def test_parties_may_exchange_encoded_models_and_learn_the_same(tmp_path: Path) -> None:
    models = {}
    for name, up, down in (("plain", "float32", "float32"), ("encoded", "int8", "bfloat16+zstd")):
        simulation = Simulation(
            dataset="digits", method="scaffold", uplink_encoding=up, downlink_encoding=down, **QUICK
        )
        result = run_simulation(simulation, tmp_path / name, engine=TWO)
        specs = read_bundle(result.bundle).manifest.tensors
        with open_storage(tmp_path / name / "coordinator") as directory:
            reports = directory.store.reports.of_attempt(AttemptId(run="simulation", round=2, attempt=1))
        assert result.model
        sent = [report.blobs["model"].size / result.model.stat().st_size for report in reports]
        assert all(ratio <= 0.27 for ratio in sent) == (name == "encoded")
        models[name] = np.array(open_model(result.model, specs))
    start = np.array(open_model(tmp_path / "plain" / "bundle" / WEIGHTS_FILE, specs))
    difference = np.linalg.norm(models["encoded"] - models["plain"])
    assert 0 < difference < 0.05 * np.linalg.norm(models["plain"] - start)
