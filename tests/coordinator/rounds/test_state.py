"""The numbers of an open round that replacements and reused updates change, and a run's status."""

from __future__ import annotations

from moonfed.coordinator.rounds.state import OpenRound, State


def test_replacements_fill_the_vacancies_of_devices_that_will_not_report() -> None:
    current = OpenRound(
        round=1,
        attempt=2,
        cohort=("a", "b", "c", "d", "e"),
        replacements=frozenset("e"),
        reported=frozenset("a"),
        declined=frozenset("b"),
        left=frozenset("c"),
    )
    assert (current.drawn, current.vacancies) == (4, 1)
    assert current.outstanding == ("c", "d", "e"), "whoever has left may return"
    assert current.missing == ("b", "c", "d", "e")
    returned = OpenRound(round=1, attempt=1, cohort=("a", "b"), replacements=frozenset("b"))
    assert returned.vacancies == 0


def test_an_update_is_of_the_attempt_that_it_was_trained_in() -> None:
    current = OpenRound(round=1, attempt=3, cohort=("a", "b"), reused={"b": 1}, reported=frozenset("ab"))
    assert current.attempts == {"a": 3, "b": 1}


def test_a_run_is_shown_as_paused_until_it_has_ended() -> None:
    assert State(paused=True).run_status == "paused"
    assert State(paused=True, status="stopped").run_status == "stopped"
