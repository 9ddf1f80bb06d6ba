"""The devices of a round without an update, as operators see them."""

from __future__ import annotations

from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.rounds.undelivered import undelivered

CURRENT = OpenRound(
    round=1,
    attempt=1,
    cohort=tuple("abcdefgh"),
    reported=frozenset("a"),
    rejected=frozenset("b"),
    declined=frozenset("c"),
    lost=frozenset("d"),
    left=frozenset("e"),
)
FRACTIONS = {"f": 0.4}


def test_each_has_an_outcome_and_a_reason() -> None:
    state = State(open=CURRENT, online=frozenset("abcdf"))
    assert undelivered(state, lambda device: FRACTIONS.get(device, 0.0), frozenset("h")) == {
        "d": ("lost", "no heartbeat within the timeout, or revoked"),
        "e": ("lost", "it left"),
        "f": ("missing", "40% trained when the round closed"),
        "g": ("missing", "offline"),
        "h": ("lost", "no heartbeat within the timeout, or revoked"),
    }


def test_between_two_rounds_there_are_none() -> None:
    assert undelivered(State(), lambda device: 0.0) == {}
