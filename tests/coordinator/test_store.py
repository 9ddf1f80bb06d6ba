"""What every store must do; so far SQLite's."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from coordinator.records import Answer, AttemptId, RunRecord
from coordinator.rounds.settings import Amount, Settings
from coordinator.storage.database import open_store
from coordinator.storage.full_disk import as_full_disk
from coordinator.storage.store import Store
from coordinator.storage.views import recovered_state, run_view
from moonfed.blobs import ref_of_bytes
from moonfed.errors import AlreadyExists, Corrupt, NotFound, VersionMismatch

RUN = RunRecord(
    run="digits",
    created=1.5,
    status="running",
    settings=Settings(rounds=3, cohort=Amount(count=2), quorum=Amount(count=1), seed=2**64 - 1),
    manifest=ref_of_bytes(b"manifest"),
    method="fedavg",
    initial=ref_of_bytes(b"initial"),
)
FIRST = AttemptId(run="digits", round=1, attempt=1)
MODEL = ref_of_bytes(b"model 1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "coordinator.db")
    yield opened
    opened.close()


def update(device: str, content: bytes = b"update", attempt: AttemptId = FIRST) -> Answer:
    return Answer(
        id=attempt,
        device=device,
        outcome="accepted",
        samples=10,
        steps=2,
        metrics={"loss": 0.5},
        blobs={"model": ref_of_bytes(content)},
    )


def test_a_run_is_kept_as_it_was_started(store: Store) -> None:
    store.add_run(RUN)
    assert store.run("digits") == RUN
    assert store.runs() == [RUN]
    with pytest.raises(AlreadyExists, match="'digits'"):
        store.add_run(RUN)
    with pytest.raises(NotFound, match="'other'"):
        store.run("other")
    store.end_run("digits", "stopped")
    assert store.run("digits").status == "stopped"


def test_a_committed_round_shows_who_counted_and_what_was_measured(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a", "b"])
    assert store.past_rounds("digits", None, 9) == []
    store.commit_round(
        FIRST, ["a"], {"model": MODEL}, metrics={"train_loss": 0.5}, metrics_before={"holdout_loss": 2.0}
    )
    store.put_metrics("digits", 0, {"accuracy": 0.1})
    store.put_metrics("digits", 1, {"accuracy": 0.8})
    store.put_metrics("digits", 1, {"accuracy": 0.9})
    view = run_view(store, RUN, None)
    assert (view.committed, view.model) == (1, MODEL)
    assert view.initial_metrics == {"accuracy": 0.1, "holdout_loss": 2.0}
    (done,) = store.past_rounds("digits", None, 9)
    assert done.missing == ("b",)
    assert done.metrics == {"accuracy": 0.9, "train_loss": 0.5}


def test_rounds_are_read_a_few_at_a_time(store: Store) -> None:
    store.add_run(RUN)
    ids = [AttemptId(run="digits", round=round_, attempt=attempt) for round_ in (1, 2, 3) for attempt in (1, 2)]
    for attempt in ids:
        store.open_round(attempt, ["a"])
        if attempt.attempt == 2:
            store.commit_round(attempt, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
        else:
            store.abandon_round(attempt, "because")
    store.open_round(AttemptId(run="digits", round=4, attempt=1), ["a"])
    assert [found.id for found in store.past_rounds("digits", None, 4)] == ids[:4]
    assert [found.id for found in store.past_rounds("digits", ids[3], 4)] == ids[4:]
    assert store.past_rounds("digits", ids[-1], 4) == []
    assert store.past_rounds("other", None, 4) == []


def test_a_receipt_stands_after_the_commit_but_not_after_abandonment(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    blobs = update("a").blobs
    assert not store.has_receipt(FIRST, "a", blobs)
    store.put_answer(update("a"))
    assert store.has_receipt(FIRST, "a", blobs)
    with pytest.raises(AlreadyExists, match="different update of 'a'"):
        store.has_receipt(FIRST, "a", update("a", b"other").blobs)
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})
    assert store.has_receipt(FIRST, "a", blobs)
    second = AttemptId(run="digits", round=2, attempt=1)
    store.open_round(second, ["a"])
    store.put_answer(update("a", attempt=second))
    store.abandon_round(second, "because")
    assert not store.has_receipt(second, "a", blobs)


def test_the_latest_round_that_counted_a_device_is_found(store: Store) -> None:
    store.add_run(RUN)
    assert store.latest_counted("digits") == {}

    def attempt(round_: int, number: int) -> AttemptId:
        return AttemptId(run="digits", round=round_, attempt=number)

    refused = {attempt(2, 2): "b"}
    courses = [(attempt(1, 1), "ab"), (attempt(2, 1), "ab"), (attempt(2, 2), "bc"), (attempt(3, 1), "bd")]
    for id_, devices in courses:
        store.open_round(id_, ["a", "b", "c", "d"])
        for device in devices:
            store.put_answer(update(device, attempt=id_))
        if id_ in refused:
            store.put_answer(Answer(id=id_, device=refused[id_], outcome="refused", reason="it was damaged"))
        if id_ in (attempt(1, 1), attempt(2, 2)):
            store.commit_round(
                id_, devices.strip(refused.get(id_, "")), {"model": MODEL}, metrics={}, metrics_before={}
            )
        elif id_ == attempt(2, 1):
            store.abandon_round(id_, "because")
    found = {device: (id_.round, id_.attempt) for device, id_ in store.latest_counted("digits").items()}
    assert found == {"a": (1, 1), "b": (1, 1), "c": (2, 2)}
    assert store.latest_counted("other") == {}


def test_all_who_were_ever_in_a_cohort_took_part(store: Store) -> None:
    for run in ("digits", "other", "idle"):
        store.add_run(replace(RUN, run=run))
    store.open_round(FIRST, ["a", "b"])
    store.abandon_round(FIRST, "because")
    for attempt, cohort in ((replace(FIRST, attempt=2), ["b", "c"]), (replace(FIRST, run="other"), ["d"])):
        store.open_round(attempt, cohort)
        store.commit_round(attempt, cohort[:1], {"model": MODEL}, metrics={}, metrics_before={})
    store.open_round(replace(FIRST, round=2), ["e"])
    assert store.participants("digits") == {"a", "b", "c", "e"}
    assert store.participants("other") == {"d"}
    assert store.participants("idle") == set()


def test_the_global_state_is_kept_with_its_round(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    blobs = {"model": MODEL, "momentum": ref_of_bytes(b"momentum"), "variate": ref_of_bytes(b"variate")}
    store.commit_round(FIRST, ["a"], blobs, metrics={}, metrics_before={})
    newest = store.latest_round("digits", "committed")
    assert newest
    assert (newest.blobs, newest.model) == (blobs, MODEL)


def test_a_killed_coordinator_finds_its_round_again(tmp_path: Path) -> None:
    first = open_store(tmp_path / "coordinator.db")
    first.add_run(RUN)
    first.open_round(FIRST, ["a", "b", "c", "d"])
    first.abandon_round(FIRST, "because")
    again = AttemptId(run="digits", round=1, attempt=2)
    first.open_round(again, ["a", "b", "c", "d"])
    first.put_answer(update("b", attempt=again))
    first.put_answer(Answer(id=again, device="c", outcome="declined", reason="busy"))
    first.put_answer(Answer(id=again, device="d", outcome="refused", reason="NaN"))
    second = open_store(tmp_path / "coordinator.db")  # the first one was never closed, as after a kill
    state = recovered_state(second, "digits")
    assert (state.committed, state.attempt) == (0, 2)
    assert state.open
    assert state.open.cohort == ("a", "b", "c", "d")
    assert [set(names) for names in (state.open.reported, state.open.declined, state.open.refused)] == [
        {"b"},
        {"c"},
        {"d"},
    ]
    assert state.open.outstanding == ("a",)
    assert second.answers(again)[0] == update("b", attempt=again)
    second.commit_round(again, ["b"], {"model": MODEL}, metrics={}, metrics_before={})
    state = recovered_state(second, "digits")
    assert (state.committed, state.attempt, state.open) == (1, 1, None)
    first.close()
    second.close()


def test_the_attempt_after_an_abandoned_one_has_the_next_number(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.abandon_round(FIRST, "because")
    assert recovered_state(store, "digits").attempt == 2


def test_an_answer_replaces_the_earlier_one(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.put_answer(Answer(id=FIRST, device="a", outcome="refused", reason="NaN"))
    store.put_answer(update("a"))
    assert store.answers(FIRST) == [update("a")]


def test_a_token_is_used_up(store: Store) -> None:
    store.registry.add_token("0" * 64, 1, time.time() + 60)
    assert store.registry.enrol("cam-1", "1" * 64, "0" * 64, 5.0)
    assert not store.registry.enrol("cam-2", "2" * 64, "0" * 64, 5.0)
    assert [device.device for device in store.registry.devices()] == ["cam-1"]
    assert store.registry.enrol("cam-1", "1" * 64, "0" * 64, 6.0), "the device that used it up asks again"
    assert store.registry.devices()[0].certificate_expires == 6.0
    token = store.registry.token("0" * 64)
    assert token
    assert token.uses_left == 0
    assert store.registry.token("3" * 64) is None


def test_a_taken_name_uses_nothing_up(store: Store) -> None:
    store.registry.add_token("0" * 64, 2, time.time() + 60)
    assert store.registry.enrol("cam-1", "1" * 64, "0" * 64, 5.0)
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        store.registry.enrol("cam-1", "2" * 64, "0" * 64, 5.0)
    token = store.registry.token("0" * 64)
    assert token
    assert token.uses_left == 1


def test_a_device_is_heard_of(store: Store) -> None:
    store.registry.seen("cam-1", {"torch": "2.6"})
    store.registry.seen("cam-1")
    store.registry.renewed("cam-1", "1" * 64, 77.0)
    device = store.registry.devices()[0]
    assert (device.platform, device.certificate_expires) == ({"torch": "2.6"}, 77.0)
    assert device.last_seen >= device.enrolled > 0


def test_it_is_durable_against_power_loss(tmp_path: Path, store: Store) -> None:
    with store._transactions.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_a_full_database_is_told_from_other_trouble(tmp_path: Path) -> None:
    engine = sql.create_engine(f"sqlite:///{tmp_path / 'full.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (content TEXT)")
        connection.exec_driver_sql("PRAGMA max_page_count = 3")
        with pytest.raises(sql.exc.OperationalError) as full:
            connection.exec_driver_sql("INSERT INTO t VALUES (?)", ("x" * 100_000,))
        with pytest.raises(sql.exc.OperationalError) as other:
            connection.exec_driver_sql("SELECT * FROM nothing")
    engine.dispose()
    assert str(as_full_disk(full.value)) == "the disk is full"
    assert as_full_disk(other.value) is None
    assert as_full_disk(OSError(errno.EDQUOT, "quota"))
    assert as_full_disk(OSError(errno.EIO, "input/output error")) is None


def test_a_damaged_database_is_not_started_on(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    store = open_store(path)
    store.add_run(RUN)
    store.close()
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="restore it and its -wal file from a backup"):
        open_store(path)
    path.write_bytes(b"this is no database, it is a text that is long enough to be looked at" * 40)
    with pytest.raises(Corrupt, match="restore it"):
        open_store(path)


def test_another_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(VersionMismatch, match="version 99; this release of moonfed reads version 4"):
        open_store(path)


def test_a_kill_after_any_statement_of_the_first_start_leaves_a_database_that_opens(tmp_path: Path) -> None:
    copies: list[Path] = []
    (tmp_path / "first").mkdir()

    def copy(*_: object) -> None:
        copies.append(tmp_path / str(len(copies)))
        shutil.copytree(tmp_path / "first", copies[-1])

    sql.event.listen(sql.Engine, "after_cursor_execute", copy)
    try:
        open_store(tmp_path / "first" / "coordinator.db").close()
    finally:
        sql.event.remove(sql.Engine, "after_cursor_execute", copy)
    assert len(copies) > 8, "there are nine statements at least: a table each, and the version"
    for directory in copies:
        store = open_store(directory / "coordinator.db")
        store.add_run(RUN)
        assert store.runs() == [RUN]
        store.close()
