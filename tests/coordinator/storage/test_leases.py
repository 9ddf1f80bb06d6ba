"""Leases on a real PostgreSQL server: one coordinator holds a run at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.coordinator.storage.store import Store
from tests.support.store_records import FIRST, MODEL, RUN, update

Two = tuple[Store, Store]


def commit(store: Store) -> None:
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})


def test_only_the_holder_of_a_runs_lease_changes_it(two: Two) -> None:
    first, second = two
    assert not second.leases.acquire("digits")
    forbidden: list[Callable[[], object]] = [
        lambda: commit(second),
        lambda: second.abandon_round(FIRST, "because"),
        lambda: second.open_round(replace(FIRST, round=2), ["a"]),
        lambda: second.end_run("digits", "stopped"),
        lambda: second.reports.replace(update("a")),
    ]
    for change in forbidden:
        with pytest.raises(LeaseLost, match="run 'digits' is now held by another coordinator"):
            change()
    assert second.run("digits").status == "running", "it is served all the same"
    commit(first)
    assert (first.leases.held(), second.leases.held()) == ({"digits"}, set())


def test_a_lease_that_ran_out_is_taken_over_and_its_old_holder_cannot_commit(two: Two) -> None:
    first, second = two
    assert first.leases.acquire("digits", 0.2)
    while not second.leases.acquire("digits"):
        time.sleep(0.05)
    with pytest.raises(LeaseLost):
        commit(first)
    assert not first.leases.acquire("digits")
    commit(second)


def test_a_lease_that_ran_out_commits_nothing_even_if_nobody_took_it(two: Two) -> None:
    first, _ = two
    assert first.leases.acquire("digits", 0.0)
    with pytest.raises(LeaseLost):
        commit(first)
    assert first.leases.acquire("digits")
    commit(first)


def test_a_lease_cannot_be_taken_in_the_middle_of_its_holders_commit(two: Two) -> None:
    first, second = two
    assert first.leases.acquire("digits", 1.5)
    taken: list[float] = []

    def take() -> None:
        while not second.leases.acquire("digits"):
            time.sleep(0.02)
        taken.append(time.monotonic())

    with first._transactions.write() as connection:
        first.leases.require(connection, "digits")
        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(1.7)  # the lease is over by now
        committing = time.monotonic()
        assert not taken
    thread.join(20)
    assert taken[0] >= committing


def test_released_leases_are_free_at_once(two: Two) -> None:
    first, second = two
    first.leases.release()
    assert second.leases.acquire("digits")


def test_leases_are_inherited_once_and_the_previous_holder_cannot_commit(two: Two) -> None:
    first, second = two
    second.inherit("somebody else")
    assert not second.leases.held()
    second.inherit(first.leases.holder or "")
    assert (first.leases.held(), second.leases.held()) == (set(), {"digits"})
    with pytest.raises(LeaseLost):
        commit(first)
    commit(second)


def test_leases_are_renewed_together_unless_another_coordinator_acquired_them(two: Two) -> None:
    holder, follower = two
    holder.add_run(replace(RUN, run="other"))
    assert holder.leases.acquire("digits", 0.0)
    assert follower.leases.acquire("digits")
    assert holder.leases.renew(30.0) == {"other"}
    assert follower.leases.renew(30.0) == {"digits"}
