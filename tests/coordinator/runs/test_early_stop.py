"""Runs that end before their last round, by the metrics that an evaluator records."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.coordinator.storage.db import sqlite
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, model_bytes


def score(fleet: Fleet, round_: int, accuracy: float) -> None:
    request = control_pb2.RecordMetricsRequest(run="run", round=round_, metrics={"accuracy": accuracy})
    ask(fleet.operator.control.RecordMetrics, request)


@pytest.mark.parametrize(
    ("settings", "scores"),
    [({"stop_after": 2}, [0.5, 0.7, 0.7, 0.6]), ({"target_metrics": {"accuracy": 0.9}}, [0.5, 0.7, 0.85, 0.93])],
    ids=["stop-after", "target"],
)
@pytest.mark.parametrize("asynchronous", [0, 1])
def test_a_run_finishes_when_its_metrics_say_so(
    fleet: Fleet, settings: dict[str, Any], scores: list[float], asynchronous: int
) -> None:
    device = fleet.device("cam-1")
    fleet.start("run", rounds=50, asynchronous=asynchronous, **settings)
    session = device.connect()
    for round_, accuracy in enumerate(scores):
        work = session.assignment()
        if round_:
            assert fleet.operator.run("run").status == "running"
        score(fleet, round_, accuracy)
        if round_ < len(scores) - 1:
            device.submit(work, model_bytes(1.0))
    list(fleet.operator.watch("run"))
    found = fleet.operator.run("run")
    assert (found.status, found.round) == ("finished", len(scores) - 1)


def test_a_run_whose_metrics_were_recorded_elsewhere_finishes_when_its_next_round_is_committed(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start("run", rounds=50, target_metrics={"accuracy": 0.9})
    work = device.connect().assignment()
    sqlite.open_store(fleet.state / "coordinator.db").put_metrics("run", 0, {"accuracy": 0.95})
    device.submit(work, model_bytes(1.0))
    list(fleet.operator.watch("run"))
    assert (fleet.operator.run("run").status, fleet.operator.run("run").round) == ("finished", 1)
