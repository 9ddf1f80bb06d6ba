"""Reading of a run for export: points with the coordinator's time, parameters, series of devices, files."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.cli.run_reader import RunReader
from moonfed.errors import NotFound
from tests.coordinator.conftest import Fleet, client
from tests.coordinator.trackers.conftest import BUNDLE, EXPECTED, ROUNDS, connected, record, train, trained
from tests.support.refusals import refused
from tests.support.signatures import TRUST

__all__ = ["trained"]


def test_a_run_is_the_same_whenever_it_is_read(trained: Fleet, tmp_path: Path) -> None:
    reader = RunReader(client(trained), "digits", tmp_path, devices=True, trust=TRUST)
    first, again = reader.read(), reader.read(whole=False)
    assert first == again
    assert (first.status, first.ended, reader.lacks_metrics()) == ("finished", True, False)
    values = first.tables()
    assert {round_: {name: values[round_][name] for name in row} for round_, row in EXPECTED.items()} == EXPECTED
    times = {point.round: point.time for point in first.points}
    rounds = trained.operator.rounds("digits")
    assert times[0] == first.created == trained.operator.run("digits").created
    assert times[ROUNDS] == pytest.approx(first.created + sum(found.seconds for found in rounds))
    assert first.parameters["settings.cohort"] == "all"
    assert first.parameters["server_rule.name"] == "mean"
    assert first.parameters["training.batch_size"] == 8
    assert len(first.device_points) == 2 * ROUNDS
    complete = reader.with_files(first)
    assert set(complete.files) == {"release/digits-1/MODEL_CARD.md", "release/digits-1/model.onnx"}
    assert complete.files["release/digits-1/model.onnx"].read_bytes() == b"float32 1 model.onnx"


def test_metrics_that_an_evaluator_still_owes_are_known(trained: Fleet, tmp_path: Path) -> None:
    sessions = connected(trained, "cam-9", site="b")
    trained.start("evaluated", rounds=2, bundle=BUNDLE, labels={"site": "b"})
    for round_ in (1, 2):
        train(sessions, round_)
    assert list(trained.operator.watch("evaluated"))[-1].run.status == "finished"
    reader = RunReader(client(trained), "evaluated", tmp_path, devices=False, trust=TRUST)
    owed = []
    for round_ in (1, 2):
        reader.read()
        owed.append(reader.lacks_metrics())
        record(trained, "evaluated", round_)
    reader.read()
    assert [*owed, reader.lacks_metrics()] == [False, True, False]
    assert reader.read().device_points == ()
    bundle = reader.with_files(reader.read()).files
    assert bundle["bundle/manifest.json"].read_bytes() == BUNDLE.files["manifest.json"]
    assert bundle["bundle/model.onnx"].read_bytes() == BUNDLE.files["model.onnx"]


def test_an_unknown_run_is_one_sentence(trained: Fleet, tmp_path: Path) -> None:
    with refused(NotFound, "run", "faces"):
        RunReader(client(trained), "faces", tmp_path, devices=False)
