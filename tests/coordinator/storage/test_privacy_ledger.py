"""The privacy ledger: one row for each committed round of a run with privacy, which nothing deletes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sql

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.privacy.ledger_entry import LedgerEntry, LedgerTotal
from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.privacy_ledger import charge
from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound, WrongState
from tests.support.store_records import FIRST, MODEL, RUN

PRIVATE = replace(
    RUN,
    settings=RunSettings(
        rounds=2,
        cohort=Amount(count=2),
        population=5,
        privacy={"epsilon": 2, "delta": 0.01, "noise_multiplier": 1.5},
        clip_norm=0.5,
    ),
)


def release(round_: int, record: RunRecord = PRIVATE, attempt: int = 1) -> LedgerEntry:
    return LedgerEntry(
        run=record.run,
        created=record.created,
        round=round_,
        attempt=attempt,
        mechanism="gaussian",
        delta=0.01,
        sampling_rate=0.4,
        noise_multiplier=1.5,
        clip_norm=0.5,
        next_clip_norm=0.5 + round_ / 8,
        updates_digest="a" * 64,
        committed=9.0,
    )


def commit(store: Store, round_: int, record: RunRecord = PRIVATE, attempt: int = 1) -> LedgerEntry:
    id_, made = AttemptId(run=record.run, round=round_, attempt=attempt), release(round_, record, attempt)
    store.open_round(id_, ["a"])
    retention = Retention(last=1, every=0)
    store.commit_round(id_, ["a"], {"model": MODEL}, metrics={}, metrics_before={}, retention=retention, release=made)
    return made


def rows(store: Store) -> list[LedgerEntry]:
    """Return all rows of the ledger, oldest first."""
    columns = tables.privacy_releases.c
    with store._transactions.read() as connection:
        found = connection.execute(sql.select(tables.privacy_releases).order_by(columns.number)).mappings()
        return [LedgerEntry(**{name: value for name, value in row.items() if name != "number"}) for row in found]


def add(store: Store, *entries: LedgerEntry) -> None:
    with store._transactions.write() as connection:
        for entry in entries:
            charge(connection, entry, budget=100)


def total(releases: int, record: RunRecord = PRIVATE, **others: Any) -> LedgerTotal:
    """The total of the first rounds of a run, as `commit` releases them."""
    given = {"mechanism": "gaussian", "delta": 0.01, "sampling_rate": 0.4, "noise_multiplier": 1.5, "committed": 9.0}
    clip = 0.5 + releases / 8
    return LedgerTotal(
        run=record.run, created=record.created, releases=releases, **{**given, "next_clip_norm": clip, **others}
    )


def test_each_committed_round_is_charged_once(store: Store, open_store: Callable[[], Store]) -> None:
    store.add_run(PRIVATE)
    assert store.privacy.of_run(PRIVATE) == []
    store.open_round(FIRST, ["a"])
    store.abandon_round(FIRST, "too few")
    made = [commit(store, 1, attempt=2), commit(store, 2)]
    assert rows(store) == made
    with pytest.raises(WrongState):
        store.commit_round(
            AttemptId(run="digits", round=2, attempt=1), ["a"], {}, metrics={}, metrics_before={}, release=release(2)
        )
    assert rows(open_store()) == made
    assert store.privacy.of_run(PRIVATE) == [total(2)]


def test_no_round_is_committed_beyond_the_budget(store: Store) -> None:
    store.add_run(PRIVATE)
    for round_ in (1, 2):
        commit(store, round_)
    with pytest.raises(WrongState, match="budget is spent"):
        commit(store, 3)
    found = store.round(AttemptId(run="digits", round=3, attempt=1))
    assert found
    assert found.status == "open", "the charge and the commit are one transaction"
    assert len(rows(store)) == 2


@pytest.mark.parametrize(
    "differs",
    [
        {"run": "other"},
        {"created": 7.0},
        {"mechanism": "none", "what": "evaluation of round 1"},
        {"what": "a model"},
        {"delta": 0.001},
        {"sampling_rate": 0.3},
        {"noise_multiplier": 1.25},
    ],
)
def test_a_total_is_of_releases_that_differ_in_nothing_that_it_states(store: Store, differs: dict[str, Any]) -> None:
    add(store, release(1), replace(release(2), **differs), replace(release(3), committed=8.0))
    one = replace(total(1, next_clip_norm=0.75), **differs)
    assert store.privacy.totals() == [one, total(2, next_clip_norm=0.875)], "the one of the last release is the last"


def test_totals_are_of_the_runs_that_are_asked_for(store: Store) -> None:
    later, other, none = replace(PRIVATE, created=7.0), replace(PRIVATE, run="other"), replace(PRIVATE, run="none")
    add(store, release(1), release(1, later), release(2, later), release(1, other), release(1, replace(RUN, run="no")))
    assert store.privacy.of_runs([later, other, none]) == {
        "digits": [total(2, later)],
        "other": [total(1, other)],
        "none": [],
    }
    assert store.privacy.of_runs([]) == {}


def test_the_clip_of_the_next_round_is_the_last_ones(store: Store) -> None:
    store.add_run(PRIVATE)
    assert store.privacy.clip_norm(PRIVATE) == 0.5
    commit(store, 1)
    assert store.privacy.clip_norm(PRIVATE) == 0.625
    assert store.privacy.clip_norm(RUN) == 0.0


def test_nothing_deletes_the_rows_and_a_later_run_of_the_name_has_its_own(store: Store) -> None:
    store.add_run(PRIVATE)
    first = commit(store, 1)
    store.prune_run("digits", Retention(last=1, every=0))
    store.end_run("digits", "finished")
    store.delete_run("digits")
    assert rows(store) == [first]
    assert store.privacy.totals("digits") == [total(1)]
    later = replace(PRIVATE, created=7.0)
    store.add_run(later)
    assert store.privacy.of_run(later) == []
    assert store.privacy.clip_norm(later) == 0.5
    second = commit(store, 1, later)
    assert rows(store) == [first, second]
    assert store.privacy.of_run(later) == [total(1, later)]
    assert store.privacy.totals("digits") == store.privacy.totals() == [total(1), total(1, later)]
    assert store.privacy.totals("other") == []


def test_a_model_that_is_rolled_back_stays_charged(store: Store) -> None:
    store.add_run(PRIVATE)
    made = commit(store, 1)
    committed = AttemptId(run="digits", round=1, attempt=1)
    store.replace_global_state(committed, {"model"}, {"model": RUN.initial}, None, "its file is damaged")
    assert rows(store) == [made]
    commit(store, 2)
    with pytest.raises(WrongState):
        commit(store, 3)


def test_what_is_released_without_noise_is_recorded_once_for_runs_with_privacy(store: Store) -> None:
    store.add_run(PRIVATE)
    store.add_run(replace(RUN, run="other"))
    for run in ("digits", "other", "digits"):
        store.privacy.record_unprotected(run, "evaluation of round 1")
    (found,) = rows(store)
    assert (found.run, found.created, found.mechanism, found.what) == ("digits", 1.5, "none", "evaluation of round 1")
    with pytest.raises(NotFound):
        store.privacy.record_unprotected("nobody", "evaluation of round 1")
    assert store.privacy.clip_norm(PRIVATE) == 0.5
