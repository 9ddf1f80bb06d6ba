"""The limit on events that anybody can cause."""

from __future__ import annotations

from moonfed.observability.flood_limit import EVENTS, MAX_CAUSES, OTHERS, PERIOD_SECONDS, FloodLimit, Omitted
from tests.support.clock import Clock


def test_a_cause_gets_a_few_events_per_period_and_then_a_count() -> None:
    clock = Clock()
    limit = FloodLimit[int](clock)
    assert [limit.admit("a", number) for number in range(EVENTS + 5)] == [True] * EVENTS + [False] * 5
    assert limit.admit("b", 99)
    assert limit.pop_omitted() == []
    clock.now += PERIOD_SECONDS
    assert limit.pop_omitted() == [Omitted(cause="a", first=0, events=5, seconds=PERIOD_SECONDS)]
    assert limit.pop_omitted() == []
    assert limit.admit("a", 7)


def test_many_causes_share_one_count() -> None:
    limit = FloodLimit[int](Clock())
    admitted = [limit.admit(f"address {number}", number) for number in range(MAX_CAUSES + EVENTS + 3)]
    assert admitted == [True] * (MAX_CAUSES + EVENTS) + [False] * 3
    (omitted,) = limit.pop_omitted(ended_only=False)
    assert (omitted.cause, omitted.first, omitted.events) == (OTHERS, MAX_CAUSES, 3)


def test_an_unfinished_period_is_reported_on_request() -> None:
    clock = Clock()
    limit = FloodLimit[int](clock)
    for number in range(EVENTS + 1):
        limit.admit("a", number)
    clock.now += 1.0
    assert limit.pop_omitted(ended_only=False) == [Omitted(cause="a", first=0, events=1, seconds=1.0)]
