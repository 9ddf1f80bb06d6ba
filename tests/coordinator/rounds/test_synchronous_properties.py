"""The state machine of a run: properties over anything that may happen in any order."""

from __future__ import annotations

import math

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies
from hypothesis.stateful import invariant, precondition, rule

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    Damaged,
    Declined,
    End,
    Open,
    Progressed,
    Reduce,
    Reduced,
    ReductionFailed,
    Replace,
    Resumed,
    RetryDue,
    SetPaused,
    Stalled,
    StartTimer,
    UpdateAccepted,
    UpdateRejected,
)
from moonfed.coordinator.rounds.protocol import SYNCHRONOUS
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.rounds.status_text import rejection_reason, waiting
from tests.support.state_machine_fleet import DEVICES, Play

ATTEMPTS = 4


class Runs(Play):
    """Plays coordinator and fleet in any order, and records independently the acknowledged updates."""

    def __init__(self) -> None:
        super().__init__(
            SYNCHRONOUS,
            RunSettings(
                rounds=3,
                cohort=Amount(fraction=0.5),
                minimum_devices=2,
                quorum=Amount(fraction=0.6),
                seed=5,
                over_selection=0.2,
                max_attempts=ATTEMPTS,
            ),
        )
        self.held: dict[str, int] = {}  # updates that the open attempt counts, or the next one may, by device
        self.failed_reduction = False
        self.committed: list[dict[str, int]] = []
        self.cohorts: dict[tuple[int, int], tuple[str, ...]] = {}
        self.wanted = self.drawn = 0  # updates of the open round, and devices drawn for it

    def obey(self, command: Command) -> None:
        match command:
            case Open(cohort=()):
                assert not self.here & self.state.online, "there was nobody to draw"
                self.cohorts[command.round, command.attempt] = ()
            case Open():
                self.opens(command)
            case Replace():
                self.joins(command)
            case StartTimer():
                self.timers.append(command.event)
            case Assign():
                assert command.device in self.here
                assert command.device in self.cohorts[command.round, command.attempt]
                assert command.device not in self.held, "its update counts already"
            case Reduce():
                assert self.reducing is None
                assert set(command.devices) == self.held.keys(), "each acknowledged update once"
                assert len(command.devices) == len(set(command.devices))
                earlier = {device: attempt for device, attempt in self.held.items() if attempt != command.attempt}
                assert command.reused == earlier, "each is from the attempt that it was acknowledged in"
                most = max(self.wanted, len(earlier))
                assert self.settings.quorum.of(self.wanted) <= len(command.devices) <= most
                self.reducing = command
            case Abandon():
                self.is_abandoned(command)
            case SetPaused():
                assert command.paused == self.paused
            case End():
                finished = len(self.committed) == self.settings.rounds
                failed = len([key for key in self.cohorts if key[0] == len(self.committed) + 1]) == ATTEMPTS
                assert finished or self.stopping or failed
                stopped = "stopped" if self.stopping else "failed"
                assert command.status == ("finished" if finished else stopped)

    def opens(self, command: Open) -> None:
        key = (command.round, command.attempt)
        assert key not in self.cohorts, "an attempt opens once"
        assert command.round == len(self.committed) + 1
        assert command.attempt <= ATTEMPTS
        assert not self.paused
        candidates = self.here | self.held.keys()
        assert len(candidates) >= self.settings.minimum_devices
        assert set(command.cohort) <= candidates
        self.cohorts[key] = command.cohort
        self.wanted, self.drawn = math.ceil(0.5 * len(candidates)), len(command.cohort)
        assert self.drawn == min(math.ceil(round(1.2 * self.wanted, 9)), len(candidates))
        assert command.reused == {name: self.held[name] for name in command.cohort if name in self.held}
        assert len(command.reused) == min(len(self.held), self.drawn), "whoever has delivered is drawn first"
        self.held = dict(command.reused)

    def joins(self, command: Replace) -> None:
        """Check that replacements are idle devices, and no more than were lost."""
        key, before = (command.round, command.attempt), self.before.open
        assert before
        assert not self.paused
        assert set(command.devices) <= self.here - set(self.cohorts[key])
        self.cohorts[key] = tuple(sorted((*self.cohorts[key], *command.devices)))
        current = self.state.open
        assert current
        assert not current.overdue
        assert self.at_work(current) <= self.drawn

    def is_abandoned(self, command: Abandon) -> None:
        key = (command.round, command.attempt)
        assert set(self.cohorts[key]) - set(command.missing) <= self.held.keys()
        assert set(command.missing) == set(self.cohorts[key]) - self.held.keys()
        lost = self.failed_reduction or self.stopping or command.attempt == ATTEMPTS
        assert command.reusable == ({} if lost else self.held), "what was acknowledged is held for the next attempt"
        assert command.reason
        self.held, self.failed_reduction = dict(command.reusable), False

    def at_work(self, current: OpenRound) -> int:
        gone = current.rejected | current.declined | current.lost | current.left
        return len(set(current.cohort) - gone)

    @rule(device=strategies.sampled_from(DEVICES), attempt=strategies.integers(0, 1))
    def delivers(self, device: str, attempt: int) -> None:
        """Act like the driver: acknowledge only accepted updates; a repetition changes nothing."""
        current = self.state.open
        round_, number = (current.round, current.attempt - attempt) if current else (1, 1)
        if rejection_reason(self.state, round_, number, device) is None:
            assert self.held.setdefault(device, number) == number, "no two updates of a device are acknowledged"
        self.send(UpdateAccepted(round=round_, attempt=number, device=device))

    @rule(device=strategies.sampled_from(DEVICES), kind=strategies.sampled_from([UpdateRejected, Declined]))
    def fails(self, device: str, kind: type[UpdateRejected | Declined]) -> None:
        if self.state.open:
            self.send(kind(round=self.state.open.round, attempt=self.state.open.attempt, device=device))

    @rule(device=strategies.sampled_from(DEVICES), kind=strategies.sampled_from([Stalled, Progressed]))
    def stalls_or_progresses(self, device: str, kind: type[Stalled | Progressed]) -> None:
        if self.state.open:
            self.send(kind(round=self.state.open.round, attempt=self.state.open.attempt, device=device))

    @precondition(lambda self: self.timers)
    @rule(data=strategies.data())
    def time_passes(self, data: strategies.DataObject) -> None:
        """Any timer may fire, including past ones."""
        self.send(data.draw(strategies.sampled_from(self.timers)))

    @precondition(lambda self: self.reducing is not None)
    @rule(works=strategies.booleans(), transient=strategies.booleans())
    def reduction_ends(self, works: bool, transient: bool) -> None:
        assert self.reducing
        done, self.reducing = self.reducing, None
        if works:
            self.committed.append(self.held)
            self.held = {}
            self.send(Reduced(round=done.round, attempt=done.attempt))
        else:
            self.failed_reduction = not transient or self.stopping
            self.send(ReductionFailed(round=done.round, attempt=done.attempt, reason="because", transient=transient))
            if transient and not self.stopping:
                assert self.state.open, "what was acknowledged stays"

    @precondition(lambda self: self.reducing is not None)
    @rule(data=strategies.data())
    def updates_are_damaged(self, data: strategies.DataObject) -> None:
        assert self.reducing
        done, self.reducing = self.reducing, None
        devices = data.draw(strategies.lists(strategies.sampled_from(done.devices), min_size=1, unique=True))
        for device in devices:
            del self.held[device]
        self.send(Damaged(round=done.round, attempt=done.attempt, devices=tuple(devices)))

    @precondition(lambda self: self.state.status == "running")
    @rule(devices=strategies.sets(strategies.sampled_from(DEVICES)))
    def restarts(self, devices: set[str]) -> None:
        """Recover like `recovered_state`: timers, losses and an unrecorded stop are forgotten."""
        current = self.state.open
        kept = current and OpenRound(
            round=current.round,
            attempt=current.attempt,
            cohort=current.cohort,
            replacements=current.replacements,
            reused=current.reused,
            reported=current.reported,
            rejected=current.rejected,
            declined=current.declined,
        )
        self.here, self.timers, self.reducing, self.stopping = set(devices), [], None, False
        self.state = State(
            committed=self.state.committed,
            attempt=self.state.attempt,
            open=kept,
            reusable=self.state.reusable,
            paused=self.paused,
        )
        self.send(Resumed(online=dict.fromkeys(devices, 0)))

    @invariant()
    def a_stop_waits_for_a_reduction_alone(self) -> None:
        assert not self.stopping or self.reducing or self.state.status != "running"

    @invariant()
    def committed_rounds_agree(self) -> None:
        assert self.state.committed == len(self.committed)

    @invariant()
    def what_was_acknowledged_is_held(self) -> None:
        current = self.state.open
        if self.state.status == "running":
            assert dict(current.attempts if current else self.state.reusable) == self.held
            kept = SYNCHRONOUS.needed_attempts(self.settings, self.state)
            round_ = len(self.committed) + 1
            assert {(round_, attempt) for attempt in self.held.values()} <= kept, "their files are not deleted"

    @invariant()
    def lost_devices_are_replaced_while_others_are_idle(self) -> None:
        current = self.state.open
        if current and not (current.reducing or current.overdue or self.paused):
            idle = self.here - set(current.cohort)
            assert self.at_work(current) >= self.drawn or not idle

    @invariant()
    def nobody_is_counted_on_twice(self) -> None:
        if current := self.state.open:
            groups = [current.reported, current.rejected, current.declined, current.lost, current.left]
            assert sum(map(len, groups)) == len(set[str]().union(*groups))
            assert set[str]().union(*groups) <= set(current.cohort)
            assert current.replacements <= set(current.cohort)
            assert current.reused.keys() <= set(current.cohort) - current.replacements

    @invariant()
    def it_says_what_it_waits_for_or_something_is_under_way(self) -> None:
        under_way = self.reducing is not None or self.state.status != "running"
        assert under_way or waiting(self.settings, self.state)

    def teardown(self) -> None:
        """Once every device is online and reports, the run ends, whatever happened before."""
        for device in DEVICES:
            self.comes_online(device)
        if self.paused:
            self.is_resumed()
        for _ in range(40):
            if self.state.status != "running":
                break
            if self.reducing:
                self.reduction_ends(works=True, transient=False)
            elif self.state.reduction_error:
                self.send(RetryDue(round=self.state.committed + 1, attempt=self.state.attempt))
            elif self.state.open:
                for device in self.state.open.outstanding:
                    self.delivers(device, 0)
            else:
                self.send(RetryDue(round=self.state.committed + 1, attempt=self.state.attempt))
        if self.state.status != "failed":
            assert self.state.status == ("stopped" if self.stopping and len(self.committed) < 3 else "finished")


TestRuns = Runs.TestCase
TestRuns.settings = hypothesis_settings(max_examples=80, stateful_step_count=50, deadline=None)
