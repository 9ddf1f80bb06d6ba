"""Evaluations in the database: one for each model, whose answers stand, in SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sql

from moonfed.blobs.store import ref_of_bytes
from moonfed.control.evaluations import DeviceScore
from moonfed.coordinator.records import EligibilityReport, EvaluationRecord, EvaluationReport
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.store import Store
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.fleet.evaluation import HoldoutScores
from tests.proto.control.test_held_out_score import SCORE
from tests.support.refusals import refused
from tests.support.store_records import RUN, committed

from .conftest import Open

NAME = RUN.run


def prepared(store: Store, *devices: str, rounds: int = 1) -> Store:
    """A run in which `a` took part, and devices that are known."""
    store.add_run(RUN)
    for round_ in range(1, rounds + 1):
        committed(store, round_)
    for device in devices:
        store.devices.seen(device, {}, None)
    return store


def answer(record: EvaluationRecord, device: str, score: float = 0.35, reason: str = "") -> EvaluationReport:
    return EvaluationReport(
        device=device,
        run=record.run,
        round=record.round,
        number=record.number,
        model=record.model.sha256,
        scores=None if reason else HoldoutScores(samples=20, score=score, local_score=0.25),
        reason=reason,
    )


def only(records: list[EvaluationRecord]) -> EvaluationRecord:
    assert len(records) == 1
    return records[0]


def test_participants_are_expected_unless_they_are_gone_or_said_that_they_are_ineligible(store: Store) -> None:
    prepared(store, "a", "b")
    assert store.evaluations.begin(NAME, 1, 60.0).pending == {"a"}
    store.eligibility.record(NAME, [EligibilityReport(device="a", fingerprint="f", reason="no data")])
    assert store.evaluations.begin(NAME, 0, 60.0).pending == frozenset()
    first = only([found for found in store.evaluations.open_ones() if found.round == 1])
    assert not first.gone
    store.devices.revoke("a")
    first = only([found for found in store.evaluations.open_ones() if found.round == 1])
    assert first.gone == {"a"}


def test_a_repeated_request_changes_nothing_until_another_one_is_asked_for(store: Store) -> None:
    evaluations = prepared(store, "a").evaluations
    first = evaluations.begin(NAME, 1, 60.0)
    assert (first.number, first.closed, first.model) == (1, 0.0, ref_of_bytes(b"model 1"))
    assert evaluations.answer(answer(first, "a"))
    for again in (False, True):  # while it is open, both join it
        found = evaluations.begin(NAME, 1, 9999.0, again=again)
        assert (found.number, found.deadline, len(found.scores)) == (1, first.deadline, 1)
    assert evaluations.close(found) == []
    ended = evaluations.begin(NAME, 1, 60.0)
    assert ended.closed > 0
    assert ended.scores == (DeviceScore(device="a", samples=20, score=0.35, local_score=0.25),)
    second = evaluations.begin(NAME, 1, 60.0, again=True)
    assert (second.number, second.scores, set(second.pending), second.closed) == (2, (), {"a"}, 0.0)
    with refused(WrongState, "evaluation", 1):
        evaluations.answer(answer(first, "a"))


def test_the_first_answer_of_a_device_stands(store: Store) -> None:
    evaluations = prepared(store, "a").evaluations
    record = evaluations.begin(NAME, 1, 60.0)
    assert evaluations.answer(answer(record, "a", 0.35))
    assert not evaluations.answer(answer(record, "a", 0.35))
    assert not evaluations.answer(answer(record, "a", 0.45))
    assert evaluations.answer(answer(record, "b", reason="no holdout"))  # was not expected
    found = only(evaluations.open_ones())
    assert [one.score for one in found.scores] == [0.35]
    assert found.declined == {"b": "no holdout"}
    assert not found.pending
    evaluations.expect(found, ["a", "b", "c"])
    assert only(evaluations.open_ones()).pending == {"c"}


@pytest.mark.parametrize("score", [1.5, -0.1])
def test_a_score_that_the_metric_cannot_have_is_rejected(store: Store, score: float) -> None:
    record = prepared(store, "a").evaluations.begin(NAME, 1, 60.0)
    with refused(InvalidInput, "score", score):
        store.evaluations.answer(answer(record, "a", score))
    assert only(store.evaluations.open_ones()).pending == {"a"}


def test_an_answer_to_another_evaluation_is_rejected(store: Store) -> None:
    evaluations = prepared(store, "a").evaluations
    with refused(NotFound, "global model", 1):
        evaluations.answer(EvaluationReport(device="a", run=NAME, round=1, number=1, model="", reason="no"))
    record = evaluations.begin(NAME, 1, 60.0)
    with pytest.raises(WrongState, match="has ended"):  # of a deleted run of the same name
        evaluations.answer(replace(answer(record, "a"), model="f" * 64))
    evaluations.close(record)
    assert evaluations.close(record) is None
    with pytest.raises(WrongState, match="has ended"):
        evaluations.answer(answer(record, "a"))
    evaluations.expect(record, ["late"])
    assert only(evaluations.of_run(NAME)).pending == {"a"}


def test_the_model_is_kept_until_the_evaluation_ends(store: Store) -> None:
    prepared(store, "a", rounds=3)
    model = ref_of_bytes(b"model 1")
    record = store.evaluations.begin(NAME, 1, 60.0)
    assert model not in store.prune_run(NAME, Retention(last=1, every=0))[1]
    assert store.refers_to(model.sha256)
    assert store.evaluations.close(record) == [model]
    assert not store.refers_to(model.sha256)
    with refused(NotFound, "global model", 1):
        store.evaluations.begin(NAME, 1, 60.0, again=True)
    with refused(NotFound, "run", "other"):
        store.evaluations.begin("other", 1, 60.0)


def test_evaluations_survive_restarts_and_end_with_their_run(open_store: Open) -> None:
    former = prepared(open_store(), "a")
    former.evaluations.begin(NAME, 1, 60.0)
    store = open_store()
    found = only(store.evaluations.open_ones())
    assert (found.key, set(found.pending)) == ((NAME, 1, 1), {"a"})
    assert 0 < found.seconds_left <= 60
    store.evaluations.put_score(NAME, 1, SCORE)
    former.end_run(NAME, "stopped")  # which holds the lease
    assert store.evaluations.open_ones()
    store.delete_run(NAME)
    assert store.evaluations.open_ones() == store.evaluations.of_run(NAME) == []
    assert store.evaluations.scores(NAME) == []


def test_a_renamed_device_keeps_its_answer_and_a_removed_one_is_not_expected(store: Store) -> None:
    prepared(store, "a", "b")
    record = store.evaluations.begin(NAME, 1, 60.0)
    store.evaluations.answer(answer(record, "a"))
    store.evaluations.expect(record, ["b"])
    store.devices.rename("a", "z")
    store.devices.remove("b")
    found = only(store.evaluations.open_ones())
    assert [score.device for score in found.scores] == ["z"]
    assert set(found.pending) == set(found.gone) == {"b"}


def test_scores_on_test_sets_are_replaced_by_name_and_are_metrics(store: Store) -> None:
    prepared(store, "a")
    day = replace(SCORE, test_set="test", metrics={"accuracy": 0.5, "loss": 0.25})
    store.evaluations.put_score(NAME, 0, SCORE)
    store.evaluations.put_score(NAME, 1, replace(SCORE, metrics={"accuracy": 0.75}))
    store.evaluations.put_score(NAME, 1, day)
    store.evaluations.put_score(NAME, 1, SCORE)
    assert store.evaluations.scores(NAME) == [(0, SCORE), (1, SCORE), (1, day)]
    assert store.metrics(NAME, 1) == {**SCORE.recorded, **day.recorded}


def test_no_more_than_the_scores_is_stored() -> None:
    """The columns of an answer: see what leaves a device in docs/security.md."""
    columns = set(tables.evaluation_devices.c.keys())
    assert columns == {"run", "round", "device", "outcome", "reason", "samples", "score", "local_score"}
    assert isinstance(tables.evaluation_devices.c.score.type, sql.Double)
