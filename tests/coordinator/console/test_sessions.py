"""Sessions end by themselves; links open one each."""

from __future__ import annotations

from moonfed.coordinator.console import sessions
from moonfed.coordinator.console.sessions import LIFE, OneTimeLinks, Sessions


def test_a_session_ends_after_its_life_or_when_it_is_closed() -> None:
    now = [0.0]
    store = Sessions(lambda: now[0])
    identifier, session = store.open("ann")
    other, _ = store.open("ann")
    assert store.find(identifier) == session
    assert store.find(identifier + "x") is None
    assert identifier != other
    store.close(other)
    assert store.find(other) is None
    now[0] = LIFE - 1
    assert store.find(identifier) == session
    now[0] = LIFE
    assert store.find(identifier) is None


def test_the_oldest_session_makes_room() -> None:
    store = Sessions()
    opened = [store.open("ann")[0] for _ in range(sessions.MOST_SESSIONS + 1)]
    assert store.find(opened[0]) is None
    assert store.find(opened[1]) is not None


def test_a_link_works_once_and_few_wait() -> None:
    links = OneTimeLinks()
    token = links.issue("ann")
    assert links.redeem(token + "x") is None
    assert links.redeem(token) == "ann"
    assert links.redeem(token) is None
    issued = [links.issue("ann") for _ in range(sessions.MOST_LINKS + 1)]
    assert [links.redeem(token) for token in issued[:2]] == [None, "ann"]


def test_no_secret_is_stored() -> None:
    store, links = Sessions(), OneTimeLinks()
    identifier, token = store.open("ann")[0], links.issue("ann")
    assert identifier not in str(vars(store))
    assert token not in str(vars(links))
