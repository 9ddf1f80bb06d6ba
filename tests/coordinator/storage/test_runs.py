"""Runs in the database: kept as they were started, and deleted once they have ended."""

from __future__ import annotations

import pytest

from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists, NotFound, WrongState
from tests.support.store_records import FIRST, RUN, update


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
    with pytest.raises(WrongState, match="'digits' is running; stop it"):
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
