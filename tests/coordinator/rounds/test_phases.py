"""The phases of an attempt: they add up to its duration, whatever moments are known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moonfed.coordinator.rounds.phases import PHASES, Moments, phase_seconds

MOMENT = st.none() | st.floats(0, 1000)


def test_a_committed_round_has_all_phases() -> None:
    moments = Moments(opened=10, last_upload=14, last_receipt=15, closed=17, reduced=20, ended=21)
    assert phase_seconds(moments) == {"training": 4, "upload": 1, "waiting": 2, "reduction": 3, "commit": 1}


def test_an_attempt_without_updates_waits() -> None:
    found = phase_seconds(Moments(opened=10, ended=40))
    assert found == {"training": 0, "upload": 0, "waiting": 30, "reduction": 0, "commit": 0}


def test_a_failed_reduction_belongs_to_the_reduction() -> None:
    found = phase_seconds(Moments(opened=0, last_upload=1, last_receipt=2, closed=2, ended=9))
    assert (found["reduction"], found["commit"]) == (7, 0)


def test_an_update_that_began_before_the_round_opened_has_no_training_in_it() -> None:
    found = phase_seconds(Moments(opened=10, last_upload=4, last_receipt=12, closed=12, reduced=13, ended=14))
    assert (found["training"], found["upload"]) == (0, 2)


@given(MOMENT, MOMENT, MOMENT, MOMENT, st.floats(0, 1000), st.floats(0, 1000))
def test_they_partition_the_time(
    upload: float | None,
    receipt: float | None,
    closed: float | None,
    reduced: float | None,
    opened: float,
    seconds: float,
) -> None:
    ended = opened + seconds
    found = phase_seconds(
        Moments(opened=opened, last_upload=upload, last_receipt=receipt, closed=closed, reduced=reduced, ended=ended)
    )
    assert tuple(found) == PHASES
    assert all(value >= 0 for value in found.values())
    assert abs(sum(found.values()) - (ended - opened)) < 1e-6
