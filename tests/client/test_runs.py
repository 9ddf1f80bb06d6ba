"""Runs through both clients: started, watched, controlled, read and evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from moonfed.blobs.tensors import write_model
from moonfed.bundle.files import read_bundle, write_bundle
from moonfed.client import (
    Coordinator,
    Ended,
    RoundCommitted,
    RoundOpened,
    Snapshot,
    UpdateReceived,
)
from moonfed.control.kinds import Amount
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, SchemaMismatch, UntrustedBundle, WrongState
from moonfed.v1 import control_pb2
from tests.client.conftest import ELEMENTS, Fleet, finished
from tests.faults.fleet import SAMPLES, expected
from tests.proto.control.test_held_out_score import SCORE as NIGHT
from tests.support.coordinator import ask
from tests.support.operator_records import score_message
from tests.support.refusals import refused
from tests.support.scoring_devices import scores_of

SCORE = replace(NIGHT, test_set="test")


def everybody(rounds: int, **others: int) -> dict[str, Any]:
    return {"rounds": rounds, "minimum_devices": 3, "quorum": "all", "trusting": True, **others}


@pytest.fixture(scope="module")
def ended(fleet: Fleet, client: Coordinator) -> str:
    """A run of two rounds that has finished, with an accuracy for the first one and the initial model."""
    started = client.start(str(fleet.path), **everybody(2))
    assert (started.status, started.rounds, started.method) == ("running", 2, "fedavg")
    finished(client, started.run)
    calls = fleet.coordinators.operator()
    with calls.channel:
        for number in (0, 1):
            request = control_pb2.RecordScoreRequest(run=started.run, round=number, score=score_message(SCORE))
            ask(calls.control.RecordScore, request)
    return started.run


def test_a_watched_run_yields_typed_events_and_ends(fleet: Fleet, client: Coordinator) -> None:
    run = client.start(fleet.path, **everybody(2))
    events = list(client.watch(run.run))
    assert isinstance(events[0], Snapshot)
    assert [event.round for event in events if isinstance(event, RoundCommitted)] == [1, 2]
    opened = [event for event in events if isinstance(event, RoundOpened)]
    assert sorted(opened[-1].cohort) == sorted(SAMPLES)
    assert {event.device for event in events if isinstance(event, UpdateReceived)} == set(SAMPLES)
    match events[-1]:
        case Ended(run=last):
            assert (last.status, last.round, last.active) == ("finished", 2, False)
        case _:
            raise AssertionError(events[-1])
    again = list(client.watch(run.run))
    assert [type(event) for event in again] == [Snapshot, Ended], "a run that ended long ago ends, too"


def test_a_run_starts_with_the_settings_of_another(fleet: Fleet, client: Coordinator, ended: str) -> None:
    first = client.run(ended)
    again = client.start(fleet.path, recipe=first.settings)
    client.stop(again.run)
    assert again.settings == first.settings
    labels = {"site": "berlin"}
    chosen = client.start(
        fleet.path,
        cohort=4,
        minimum_devices=4,
        quorum="75%",
        labels=labels,
        reducer="trimmed_mean",
        reducer_settings={"byzantine": 1},
        over_selection="50%",
        allow_empty=True,
    )
    client.stop(chosen.run)
    assert chosen.settings.labels == labels
    assert (chosen.settings.reducer, chosen.settings.reducer_settings) == ("trimmed_mean", {"byzantine": 1})
    assert (chosen.settings.cohort, chosen.settings.quorum) == (Amount(count=4), Amount(fraction=0.75))
    assert chosen.rounds == chosen.settings.rounds == 10
    default = client.start(fleet.path)
    client.stop(default.run)
    assert default.settings.weight_cap == 1.25, "as `run start` without options"
    assert not default.settings.trusting


def test_a_program_records_its_own_metrics(fleet: Fleet, client: Coordinator) -> None:
    started = client.start(fleet.path, name="measured", labels={"site": "nowhere"}, allow_empty=True)  # no rounds
    run = client.stop(started.run).run
    client.record_metrics(run, {"f1": 0.75, "recall": 0.5})
    client.record_metrics(run, {"f1": 0.25}, round=0)
    assert client.run(run).initial_metrics == {"f1": 0.25, "recall": 0.5}
    with refused(NotFound, "global model", 9):
        client.record_metrics(run, {"f1": 1.0}, round=9)
    with pytest.raises(InvalidInput, match="f1"):
        client.record_metrics(run, {"f1": float("nan")})
    client.delete(run)


def test_settings_come_from_a_recipe(fleet: Fleet, client: Coordinator, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('rounds = 7\nparties = 5\nquorum = "20%"\n[labels]\nsite = "rome"\n')
    run = client.start(fleet.path, recipe=recipe, quorum=2, allow_empty=True)
    client.stop(run.run)
    assert (run.rounds, run.settings.quorum, run.settings.labels) == (7, Amount(count=2), {"site": "rome"})
    recipe.write_text("rounds = = 7")
    with pytest.raises(InvalidInput, match="is not TOML"):
        client.start(fleet.path, recipe=recipe)


def test_a_mistake_is_an_error_of_ours_that_names_it(fleet: Fleet, client: Coordinator, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="rounds is 0; it must be"):
        client.start(fleet.path, rounds=0)
    with pytest.raises(InvalidInput, match="quorums"):
        client.start(fleet.path, quorums=3)
    with pytest.raises(InvalidInput, match="rounds is "):
        client.start(fleet.path, rounds=object())
    with pytest.raises(NotFound, match="is not a bundle"):
        client.start(tmp_path)
    with pytest.raises(NotFound, match="'nothing'"):
        client.run("nothing")
    with pytest.raises(NotFound, match="'nothing'"):
        list(client.watch("nothing"))
    unsigned = read_bundle(fleet.path)
    write_bundle(tmp_path / "unsigned", type(unsigned)(unsigned.manifest, unsigned.contents))
    with pytest.raises(UntrustedBundle, match="not signed"):
        client.start(tmp_path / "unsigned")


def test_a_run_is_paused_resumed_stopped_and_deleted(fleet: Fleet, client: Coordinator, ended: str) -> None:
    run = client.start(fleet.path, rounds=1, minimum_devices=50).run
    with pytest.raises(AlreadyExists, match=run):
        client.start(fleet.path, name=run)
    assert client.pause(run).status == "paused"
    assert client.resume(run).status == "running"
    with pytest.raises(WrongState, match="stop"):
        client.delete(run)
    assert client.stop(run).status == "stopped"
    assert {found.run: found.status for found in client.runs()}[ended] == "finished"
    assert client.delete(run) >= 0
    assert run not in [found.run for found in client.runs()]


def test_rounds_are_a_table(client: Coordinator, ended: str) -> None:
    table = pd.DataFrame(client.rounds(ended))
    assert list(table["round"]) == [1, 2]
    assert list(table["status"]) == ["committed"] * 2
    assert table["accuracy"][0] == SCORE.score
    assert np.isnan(table["accuracy"][1])
    assert list(table["train_loss"]) == [1.0, 0.5]
    assert list(table["outcomes"]) == [{"counted": 3}] * 2
    assert (table["received_bytes"] > 0).all()
    assert set(table["phases"][0]) >= {"training", "upload"}
    assert sorted(table["counted"][0]) == sorted(SAMPLES)
    assert [found.round for found in client.rounds(ended, last=1)] == [2]
    assert [found.round for found in client.rounds(ended, round=1)] == [1]
    assert client.rounds(ended, round=3) == []


def test_weights_are_arrays(fleet: Fleet, client: Coordinator, ended: str) -> None:
    weights = client.weights(ended)
    assert weights.keys() == {"weight"}
    np.testing.assert_allclose(weights["weight"], expected(2, fleet.bundle, SAMPLES), rtol=1e-6)
    np.testing.assert_allclose(client.weights(ended, round=1)["weight"], expected(1, fleet.bundle, SAMPLES), rtol=1e-6)
    np.testing.assert_array_equal(client.weights(ended, round=0)["weight"], np.ones(ELEMENTS))
    with pytest.raises(NotFound, match="round 9; its newest is 2"):
        client.weights(ended, round=9)


def test_a_deleted_model_is_not_found(fleet: Fleet, client: Coordinator) -> None:
    run = client.start(fleet.path, **everybody(3, keep_last=1, keep_every=0)).run
    finished(client, run)
    with pytest.raises(NotFound, match=r"the global model of round 1 of run .* was deleted; the newest are 2, 3"):
        client.weights(run, round=1)


def test_a_run_begins_with_given_weights(fleet: Fleet, client: Coordinator, ended: str, tmp_path: Path) -> None:
    weights, specs = client.weights(ended), fleet.bundle.manifest.tensors
    path = tmp_path / "model.safetensors"
    write_model(path, specs, [weights["weight"]])
    for initial in (weights, path, ended):
        run = client.start(fleet.path, initial=initial, minimum_devices=50).run
        np.testing.assert_array_equal(client.weights(run)["weight"], weights["weight"])
        client.stop(run)
    with pytest.raises(SchemaMismatch, match="the difference is bias"):
        client.start(fleet.path, initial={**weights, "bias": np.zeros(1, np.float32)})
    with pytest.raises(InvalidInput, match=r"initial\['weight'\] has shape \(3,\); it must be \(12,\)"):
        client.start(fleet.path, initial={"weight": np.zeros(3, np.float32)})
    with pytest.raises(NotFound, match="there is no such file"):
        client.start(fleet.path, initial=tmp_path / "absent.safetensors")


def test_evaluations_are_a_table(client: Coordinator, ended: str) -> None:
    began = client.evaluate(ended, wait=False)
    assert began.on_devices
    found = client.evaluate(ended)
    assert found.on_devices
    assert found.on_devices.closed is not None
    assert {score.device: score.samples for score in found.on_devices.scores} == {
        device: scores_of(device, 2).samples for device in SAMPLES
    }
    assert found.value == found.on_devices.median
    table = pd.DataFrame(client.evaluations(ended))
    assert list(table["round"]) == [0, 1, 2]
    assert list(table["test_set"].fillna("devices")) == ["test", "test", "devices"]
    assert client.evaluations(ended)[0].score
    with pytest.raises(NotFound, match="no global model 9"):
        client.evaluate(ended, round=9)
