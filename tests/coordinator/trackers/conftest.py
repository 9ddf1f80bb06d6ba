from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moonfed.bundle.target import class_target
from moonfed.coordinator.cli.program import app
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.proto.control.test_held_out_score import SCORE
from tests.support.coordinator import Device, DeviceSession, ask, make_bundle, model_bytes
from tests.support.operator_records import score_message
from tests.support.release_fleet import create, signed_release

BUNDLE = make_bundle(target=class_target(SCORE.classes))
ROUNDS = 3
Export = Callable[..., dict[str, Any]]


Sessions = list[tuple[Device, DeviceSession]]


def train(sessions: Sessions, round_: int) -> None:
    """Train a round on devices; its model is filled with its number."""
    for device, session in sessions:
        device.submit(session.assignment(), model_bytes(float(round_)), metrics={"loss": 1 / round_})


def record(fleet: Fleet, run: str, round_: int) -> None:
    request = control_pb2.RecordMetricsRequest(run=run, round=round_, metrics={"accuracy": round_ / 10})
    ask(fleet.operator.control.RecordMetrics, request)


def connected(fleet: Fleet, *names: str, site: str) -> Sessions:
    """Connect devices of a site, for runs that only these may join."""
    devices = [fleet.device(name) for name in names]
    return [(device, device.connect(labels={"site": site})) for device in devices]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A coordinator whose run `digits` has finished: three rounds on two devices, evaluated and released."""
    with fleet_in(tmp_path_factory.mktemp("trained")) as fleet:
        sessions = connected(fleet, "cam-1", "cam-2", site="a")
        fleet.start("digits", rounds=ROUNDS, bundle=BUNDLE, minimum_devices=2, labels={"site": "a"})
        for round_ in range(1, ROUNDS + 1):
            train(sessions, round_)
        list(fleet.operator.watch("digits"))
        for round_ in range(ROUNDS + 1):
            record(fleet, "digits", round_)
        score = control_pb2.RecordScoreRequest(run="digits", round=ROUNDS, score=score_message(SCORE))
        ask(fleet.operator.control.RecordScore, score)
        create(fleet.operator, signed_release("digits", BUNDLE))
        yield fleet


@pytest.fixture
def export(trained: Fleet, capsys: pytest.CaptureFixture[str]) -> Export:
    """Run `run export`; return what it prints."""

    def run(name: str, *words: str) -> dict[str, Any]:
        identity = str(trained.state / "operator")
        app(["run", "export", name, *words, "--identity", identity, "--json"], standalone_mode=False)
        document = json.loads(capsys.readouterr().out)
        assert isinstance(document, dict)
        return document

    return run


EXPECTED = {
    0: {"accuracy": 0.0},
    **{
        round_: {"accuracy": round_ / 10, "train_loss": 1 / round_, "updates": 2.0, "missing": 0.0}
        for round_ in range(1, ROUNDS + 1)
    },
}
EXPECTED[ROUNDS] |= {"accuracy@night": 4 / 6, "loss@night": 0.5}


def files_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
