"""The outbox: events are recorded with what happened, in order, and each is delivered by one coordinator at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState
from tests.coordinator.storage.conftest import Open
from tests.support.releases import NAME, add_releases, deployment
from tests.support.store_records import FIRST, RUN, committed

LONG = 1000.0  # seconds


def opened(store: Store) -> Store:
    store.outbox.open()
    store.add_run(RUN)
    return store


def bodies(store: Store) -> list[dict[str, Any]]:
    """Deliver all events that are due."""
    found = []
    while delivery := store.outbox.claim(LONG):
        found.append(json.loads(delivery.body))
        assert found[-1].pop("id") == delivery.id
        assert found[-1].pop("time").endswith("Z")
        store.outbox.remove(delivery.number)
    return found


def event(kind: str, **facts: object) -> dict[str, object]:
    return {"type": kind, "data": facts}


def test_what_happens_is_recorded_once_and_in_order(store: Store) -> None:
    opened(store)
    store.open_round(FIRST, ["a"])
    for _ in range(2):  # as after a lost answer of the database
        store.abandon_round(FIRST, "too few updates")
    committed(store, 2)
    third = AttemptId(run="digits", round=3, attempt=1)
    store.open_round(third, ["a"])
    store.abandon_round(third, "the run was stopped; a: too warm")  # no event of its own
    for _ in range(2):
        store.end_run("digits", "failed", "given up")
    assert bodies(store) == [
        event("round.abandoned", run="digits", round=1, attempt=1, updates=0, reason="too few updates"),
        event("run.failed", run="digits", status="failed", round=2, reason="given up"),
    ]
    assert bodies(store) == []


def test_a_release_is_rolled_back_once(store: Store) -> None:
    add_releases(store, 1)
    store.deployments.deploy(deployment(), allow_empty=True)
    store.outbox.open()
    for _ in range(2):
        store.deployments.roll_back(NAME, 1)
    with pytest.raises(WrongState):
        store.deployments.roll_back(NAME)
    rolled_back = event("release.rolled_back", release=NAME, deployment=1, version=1, variant="float32")
    assert bodies(store) == [rolled_back]


def test_without_a_webhook_nothing_is_recorded(store: Store) -> None:
    store.add_run(RUN)
    store.end_run("digits", "stopped")
    store.outbox.open()
    assert bodies(store) == []


def test_nothing_overtakes_an_event_that_waits_unless_that_was_refused(store: Store) -> None:
    opened(store)
    store.open_round(FIRST, ["a"])
    store.abandon_round(FIRST, "no")
    store.end_run("digits", "stopped")
    first = store.outbox.claim(LONG)
    assert first
    assert store.outbox.claim(LONG) is None  # it is being delivered
    store.outbox.postpone(first.number, LONG, refused=False)
    assert store.outbox.claim(LONG) is None  # the receiver is down
    store.outbox.postpone(first.number, 0.0, refused=False)
    again = store.outbox.claim(LONG)
    assert again
    assert (again.id, again.attempts) == (first.id, 2)
    store.outbox.postpone(first.number, LONG, refused=True)
    assert [body["type"] for body in bodies(store)] == ["run.ended"]
    store.outbox.postpone(first.number, 0.0, refused=True)
    assert [body["type"] for body in bodies(store)] == ["round.abandoned"]


def test_another_coordinator_continues_when_a_claim_has_ended(open_store: Open) -> None:
    store = opened(open_store())
    store.end_run("digits", "stopped")
    first = store.outbox.claim(LONG)
    assert first
    successor = open_store()
    if store.leases.holder:  # both live: the claim holds until it expires
        successor.outbox.open()
        assert successor.outbox.claim(LONG) is None
        store.outbox.postpone(first.number, 0.0, refused=False)
    else:  # the other one has ended, since this one opened the database
        successor.outbox.open()
    found = successor.outbox.claim(0.0)
    assert found
    assert (found.id, found.body) == (first.id, first.body)
    assert store.outbox.claim(LONG)  # the successor's claim has expired


def test_two_coordinators_deliver_each_event_once_and_in_order(replica: Callable[[], Store]) -> None:
    stores = [replica(), replica()]
    for store in stores:
        store.outbox.open()
    stores[0].add_run(RUN)
    for attempt in range(1, 21):
        id_ = AttemptId(run="digits", round=1, attempt=attempt)
        stores[0].open_round(id_, ["a"])
        stores[0].abandon_round(id_, "no")
    delivered: list[int] = []

    def deliver(store: Store) -> None:
        while len(delivered) < 20:
            if delivery := store.outbox.claim(LONG):
                delivered.append(json.loads(delivery.body)["data"]["attempt"])
                store.outbox.remove(delivery.number)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(deliver, stores))
    assert delivered == list(range(1, 21))
