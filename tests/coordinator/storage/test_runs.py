"""Runs in the database: kept as they were started, and deleted once they have ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sql

from moonfed.coordinator.draw import Draw
from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists, NotFound, WrongState
from tests.support.refusals import refused
from tests.support.secret_draw import forms
from tests.support.store_records import FIRST, RUN, update

RENAMED = ("RENAME TO elsewhere", "RENAME COLUMN secret TO elsewhere")


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


def test_only_a_run_that_has_ended_is_deleted_and_then_its_name_is_free(store: Store) -> None:
    store.add_run(RUN)
    store.open_round(FIRST, ["a"])
    store.reports.replace(update("a"))
    store.put_metrics("digits", 0, {"accuracy": 0.5})
    with refused(WrongState, "run", "digits"):
        store.delete_run("digits")
    store.abandon_round(FIRST, "stopped")
    store.end_run("digits", "stopped")
    store.delete_run("digits")
    with pytest.raises(NotFound, match="'digits'"):
        store.delete_run("digits")
    store.add_run(RUN)
    assert store.past_rounds("digits", None, 9) == []
    assert store.metrics("digits", 0) == {}
    assert store.participants("digits") == set()


def test_each_run_has_a_random_secret_of_its_own_which_a_later_start_finds(open_store: Callable[[], Store]) -> None:
    names, store = ("digits", "faces", "roads"), open_store()
    for name in names:
        store.add_run(replace(RUN, run=name))
    secrets = [store.draw(name).secret for name in names]
    assert len(set(secrets)) == 3
    assert all(len(set(secret)) > 16 for secret in secrets), "random bytes"
    store.open_round(FIRST, ["a"])
    store.abandon_round(FIRST, "too few")
    assert [open_store().draw(name).secret for name in names] == secrets
    with pytest.raises(NotFound, match="'other'"):
        store.draw("other")


def test_a_given_secret_is_kept_and_goes_with_its_run(store: Store) -> None:
    for number in (0, 1, 255):
        draw = Draw(bytes([number] * 32))
        store.add_run(RUN, draw=draw)
        assert store.draw("digits") == draw
        with pytest.raises(AlreadyExists):
            store.add_run(RUN)
        assert store.draw("digits") == draw
        store.end_run("digits", "stopped")
        store.delete_run("digits")
        with pytest.raises(NotFound):
            store.draw("digits")


@pytest.mark.parametrize("damage", ["DROP TABLE draws", *(f"ALTER TABLE draws {change}" for change in RENAMED)])
def test_no_error_of_the_database_shows_the_secret_or_another_value(store: Store, damage: str) -> None:
    with store._transactions.write() as connection:
        connection.exec_driver_sql(damage)
    secret = bytes(range(100, 132))
    with pytest.raises(sql.exc.SQLAlchemyError) as caught:
        store.add_run(RUN, draw=Draw(secret))
    message = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "INSERT INTO draws" in message
    assert not [form for form, text in forms(secret).items() if text in message.encode()]
    assert "'digits'" not in message, "nor any other value"
