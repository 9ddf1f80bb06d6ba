"""The state machine of a run with differential privacy, by examples and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.cohort import poisson_cohort
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    DeadlinePassed,
    Declined,
    DeviceLeft,
    DeviceOffline,
    Event,
    Open,
    PauseRequested,
    Reduce,
    Reduced,
    Replace,
    Resumed,
    ResumeRequested,
    RetryDue,
    Stalled,
    UpdateRejected,
)
from moonfed.coordinator.rounds.sizes import devices_needed, fewest_updates, updates_closing
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.rounds.status_text import rejection_reason
from tests.support.state_machine_fleet import DRAW, after, devices_online, only
from tests.support.synchronous_run import accepted

NAMES = [f"cam-{number:02}" for number in range(40)]


def private(quorum: int, *, cohort: int = 10, population: int = 40) -> RunSettings:
    return RunSettings(
        rounds=3,
        cohort=Amount(count=cohort),
        population=population,
        privacy={"epsilon": 2, "delta": 1e-6, "noise_multiplier": 1},
        clip_norm=1.0,
        quorum=Amount(count=quorum),
    )


FOUR = private(4)  # of 10 expected: a round opens with 16 devices
DRAWN = poisson_cohort(FOUR, DRAW, 1, 1, NAMES)
AGAIN = poisson_cohort(FOUR, DRAW, 1, 2, NAMES)
IDLE = sorted(set(NAMES) - set(DRAWN))


def joined(commands: list[Command]) -> list[str]:
    return [name for command in commands if isinstance(command, Replace) for name in command.devices]


def opened() -> State:
    return after(FOUR, Resumed(online=dict.fromkeys(NAMES, 0)))[0]


def test_a_round_opens_when_so_many_are_online_that_the_quorum_is_expected() -> None:
    assert devices_needed(FOUR) == 16
    assert fewest_updates(FOUR) == 4
    state, commands = after(FOUR, *devices_online(*NAMES[:15]))
    assert not commands
    _, commands = after(FOUR, *devices_online(NAMES[15]), state=state)
    assert only(commands, Open) == [Open(round=1, attempt=1, cohort=poisson_cohort(FOUR, DRAW, 1, 1, NAMES[:16]))]


def test_a_round_waits_for_every_device_that_it_has_drawn() -> None:
    state, commands = after(FOUR, *(accepted(name) for name in DRAWN[:-1]), state=opened())
    assert not only(commands, Reduce)
    assert updates_closing(FOUR, len(DRAWN)) == len(DRAWN)
    _, commands = after(FOUR, accepted(DRAWN[-1]), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=DRAWN)]


@pytest.mark.parametrize(
    "lost",
    [
        UpdateRejected(round=1, attempt=1, device=DRAWN[0]),
        Declined(round=1, attempt=1, device=DRAWN[0]),
        Stalled(round=1, attempt=1, device=DRAWN[0]),
        DeviceLeft(device=DRAWN[0]),
    ],
)
def test_a_missing_device_is_not_replaced(lost: Event) -> None:
    state, commands = after(FOUR, DeviceOffline(device=DRAWN[0]), lost, state=opened())
    assert not only(commands, Replace)
    state, commands = after(FOUR, *(accepted(name) for name in DRAWN[1:]), state=state)
    if isinstance(lost, DeviceLeft):  # it may return until the deadline
        assert not commands
        _, commands = after(FOUR, DeadlinePassed(round=1, attempt=1), state=state)
    assert only(commands, Reduce) == [Reduce(round=1, attempt=1, devices=DRAWN[1:])]


def test_a_device_that_comes_while_the_round_is_open_is_drawn_by_the_same_coin() -> None:
    some = NAMES[:20]
    state, _ = after(FOUR, Resumed(online=dict.fromkeys(some, 0)))
    state, commands = after(FOUR, *devices_online(*NAMES[20:]), state=state)
    late = [name for name in DRAWN if name not in some]
    assert late
    assert joined(commands) == late
    assert [command.device for command in commands if isinstance(command, Assign)] == late
    assert state.open
    assert state.open.cohort == DRAWN
    assert rejection_reason(state, 1, 1, late[0]) is None
    _, commands = after(FOUR, *devices_online(*late), state=state)
    assert not only(commands, Replace), "once"


def test_devices_that_came_while_the_coordinator_was_down_are_drawn_as_it_resumes() -> None:
    state, _ = after(FOUR, Resumed(online=dict.fromkeys(NAMES[:20], 0)))
    state, commands = after(FOUR, Resumed(online=dict.fromkeys(NAMES, 0)), state=state)
    assert state.open
    assert state.open.cohort == DRAWN
    assert joined(commands) == [name for name in DRAWN if name not in NAMES[:20]]


@pytest.mark.parametrize("closed", ["overdue", "reducing", "paused"])
def test_nobody_is_drawn_into_a_round_that_has_closed_or_while_the_run_is_paused(closed: str) -> None:
    some = NAMES[:20]
    state, _ = after(FOUR, Resumed(online=dict.fromkeys(some, 0)))
    assert state.open
    cohort = state.open.cohort
    if closed == "paused":
        state, _ = after(FOUR, PauseRequested(), state=state)
    elif closed == "overdue":
        state, _ = after(FOUR, *(accepted(name) for name in cohort), DeadlinePassed(round=1, attempt=1), state=state)
    else:
        state, _ = after(FOUR, *(accepted(name) for name in cohort), state=state)
    _, commands = after(FOUR, *devices_online(*NAMES[20:]), state=state)
    assert not only(commands, Replace)
    assert not only(commands, Assign)


def test_the_quorum_is_of_the_expected_cohort_and_the_next_attempt_is_drawn_afresh() -> None:
    state, commands = after(FOUR, *(accepted(name) for name in DRAWN[:3]), state=opened())
    state, commands = after(FOUR, DeadlinePassed(round=1, attempt=1), state=state)
    (abandon,) = only(commands, Abandon)
    assert isinstance(abandon, Abandon)
    assert not abandon.reusable, "an abandoned attempt releases nothing"
    _, commands = after(FOUR, RetryDue(round=1, attempt=2), state=state)
    assert only(commands, Open) == [Open(round=1, attempt=2, cohort=AGAIN)]
    assert AGAIN != DRAWN


def test_a_round_that_draws_too_few_is_abandoned_at_once() -> None:
    settings = private(1, cohort=1, population=20)
    few = next(
        names
        for names in (NAMES[start : start + 20] for start in range(20))
        if not poisson_cohort(settings, DRAW, 1, 1, names)
    )
    _, commands = after(settings, Resumed(online=dict.fromkeys(few, 0)))
    assert only(commands, Open) == [Open(round=1, attempt=1, cohort=())]
    assert only(commands, Abandon)


@given(strategies.permutations(NAMES), strategies.integers(16, 40))
def test_the_cohort_does_not_depend_on_the_order_in_which_devices_come(order: list[str], first: int) -> None:
    state, _ = after(FOUR, Resumed(online=dict.fromkeys(order[:first], 0)))
    if not state.open or not state.open.waits:
        return
    state, _ = after(FOUR, *devices_online(*order[first:]), state=state)
    assert state.open
    assert state.open.cohort == DRAWN


def test_the_next_round_draws_others() -> None:
    state, _ = after(FOUR, *(accepted(name) for name in DRAWN), state=opened())
    state, commands = after(FOUR, Reduced(round=1, attempt=1), state=state)
    (second,) = only(commands, Open)
    assert second == Open(round=2, attempt=1, cohort=poisson_cohort(FOUR, DRAW, 2, 1, NAMES))
    assert state.open
    assert state.open.cohort != DRAWN
    assert not after(FOUR, ResumeRequested(), state=state)[0].paused
