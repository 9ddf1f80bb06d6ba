"""A followed run: its rounds' times, metrics and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import open_storage
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.follow_run import Clock
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.run import run_simulation
from tests.support.quick_simulations import QUICK, TWO, rows
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow


def test_the_parties_metrics_are_in_the_results(tmp_path: Path) -> None:
    keys = QUICK | {"settings": QUICK["settings"] | {"measure_inexactness": 1}}
    run_simulation(make_simulation(dataset="wine", model="mlp", method="fedprox", **keys), tmp_path / "a", engine=TWO)
    with open_storage(tmp_path / "a" / "coordinator") as directory:
        for row in rows(tmp_path / "a"):
            record = directory.store.round(AttemptId(run="simulation", round=row["round"], attempt=1))
            assert record is not None
            reports = directory.store.reports.of_attempt(record.id)
            messages = [(report.samples, report.metrics["inexactness"]) for report in reports]
            mean = sum(samples * value for samples, value in messages) / sum(samples for samples, _ in messages)
            assert row["metrics"]["inexactness"] == pytest.approx(mean)
            assert 0 < mean < 10
        (tmp_path / "a" / "summary.json").unlink()  # as if it had been killed at the very end
    before = rows(tmp_path / "a")
    run_simulation(make_simulation(dataset="wine", model="mlp", method="fedprox", **keys), tmp_path / "a", engine=TWO)
    assert rows(tmp_path / "a") == before


def test_a_rounds_time_goes_on_where_a_killed_simulation_left_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.clock.write_text(json.dumps({"round": 2, "seconds": 1000.0, "party_seconds": 300.0}))
    clock = Clock(layout)
    clock.start(2)
    assert 1000.0 <= clock.times.seconds < 1100.0
    clock.keep(party_seconds=50.0)
    assert clock.times.party_seconds == 350.0
    again = Clock(layout)
    again.start(2)
    assert again.times.seconds >= 1000.0
    assert again.times.party_seconds == 350.0
    again.start(3)
    assert (again.times.seconds < 100.0, again.times.party_seconds) == (True, 0.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"round": 2}', '{"round": 2, "seconds": "x", "party_seconds": 1}'])
def test_a_damaged_clock_starts_from_zero(tmp_path: Path, text: str) -> None:
    Layout(tmp_path).clock.write_text(text)
    clock = Clock(Layout(tmp_path))
    clock.start(2)
    assert clock.times.seconds < 100.0


@pytest.mark.parametrize(
    ("keys", "models"),
    [
        ({"method": "fedavg"}, [(3, 3), (3, 3)]),
        ({"method": "scaffold"}, [(3, 6), (6, 6)]),  # a control variate besides, once there is one
        ({"method": "fedavg", "cohort": "2"}, [(2, 2), (2, 2)]),
        ({"method": "fedavg", "cohort": "2", "over_selection": "50%"}, [(3, 2), (3, 2)]),  # one comes too late
        ({"method": "pooled"}, [(1, 1), (1, 1)]),
    ],
    ids=["fedavg", "scaffold", "cohort", "over-selection", "pooled"],
)
def test_traffic_is_what_all_parties_receive_and_send(
    tmp_path: Path, keys: dict[str, Any], models: list[tuple[int, int]]
) -> None:
    result = run_simulation(
        make_simulation(dataset="wine", model="mlp", **{**QUICK, **keys}), tmp_path / "a", engine=TWO
    )
    assert result.model is not None
    size = result.model.stat().st_size
    found = [(row["sent_bytes"] / size, row["received_bytes"] / size) for row in rows(tmp_path / "a")]
    assert found == [pytest.approx(one, rel=0.01) for one in models]


def test_an_encoding_saves_traffic(tmp_path: Path) -> None:
    keys = {**QUICK, "projection": 256, "uplink_encoding": "bfloat16"}
    run_simulation(make_simulation(dataset="wine", model="mlp", method="fedavg", **keys), tmp_path / "a", engine=TWO)
    assert [row["received_bytes"] / row["sent_bytes"] for row in rows(tmp_path / "a")] == [
        pytest.approx(0.5, abs=0.01)
    ] * 2


def test_rounds_of_an_earlier_start_keep_its_environment(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"dataset": "wine", "model": "mlp", "method": "fedavg", **QUICK}
    run_simulation(make_simulation(**keys), tmp_path / "a", engine=TWO)
    (tmp_path / "a" / "summary.json").unlink()
    run_simulation(make_simulation(**keys), tmp_path / "a", engine=EngineSettings(workers=1))
    assert [row["environment"]["workers"] for row in rows(tmp_path / "a")] == [2, 2]


def test_a_split_is_known_by_its_digest(tmp_path: Path) -> None:
    """It depends on the split alone: not on method or seed of the training, if the split's seed is given."""
    keys: dict[str, Any] = {"dataset": "wine", "model": "mlp", "partition_seed": 5, **QUICK, "rounds": 1}
    changed: dict[str, dict[str, Any]] = {"a": {}, "b": {"method": "moon", "seed": 2}, "c": {"partition_seed": 6}}
    for name, changes in changed.items():
        run_simulation(make_simulation(**{**keys, **changes}), tmp_path / name, engine=TWO)
    a, b, c = (json.loads((tmp_path / name / "summary.json").read_text())["split"] for name in "abc")
    assert a == b != c
    assert sum(a["sizes"]) == sum(c["sizes"])
    assert rows(tmp_path / "a")[0]["split_sha256"] == a["sha256"]
