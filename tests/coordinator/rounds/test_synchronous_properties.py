"""The state machine of a run: properties over anything that may happen in any order."""

from __future__ import annotations

import math

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies
from hypothesis.stateful import invariant, precondition, rule

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
    Resumed,
    RetryDue,
    Stalled,
    StartTimer,
    UpdateAccepted,
    UpdateRejected,
)
from moonfed.coordinator.rounds.protocol import SYNCHRONOUS
from moonfed.coordinator.rounds.settings import Amount, RunSettings
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.rounds.status_text import rejection_reason, waiting
from tests.support.state_machine_fleet import DEVICES, Play


class Runs(Play):
    """Plays coordinator and fleet in any order, and records independently the acknowledged updates."""

    def __init__(self) -> None:
        super().__init__(
            SYNCHRONOUS,
            RunSettings(
                rounds=3,
                cohort=Amount(fraction=0.6),
                minimum_devices=2,
                quorum=Amount(fraction=0.6),
                seed=5,
                over_selection=0.5,
            ),
        )
        self.acknowledged: dict[tuple[int, int], set[str]] = {}
        self.damaged: dict[tuple[int, int], set[str]] = {}
        self.committed: list[tuple[str, ...]] = []
        self.cohorts: dict[tuple[int, int], tuple[str, ...]] = {}
        self.sizes: dict[tuple[int, int], int] = {}  # of the cohorts without those drawn beyond

    def obey(self, command: Command) -> None:
        match command:
            case Open():
                key = (command.round, command.attempt)
                assert key not in self.cohorts, "an attempt opens once"
                assert command.round == len(self.committed) + 1
                assert len(self.here) >= self.settings.minimum_devices
                assert set(command.cohort) <= self.here
                self.cohorts[key] = command.cohort
                self.sizes[key] = math.ceil(0.6 * len(self.here))
                assert len(command.cohort) == min(math.ceil(1.5 * self.sizes[key]), len(self.here))
            case StartTimer():
                self.timers.append(command.event)
            case Assign():
                assert command.device in self.here
                assert command.device in self.cohorts[command.round, command.attempt]
            case Reduce():
                assert self.reducing is None
                key = (command.round, command.attempt)
                whole = self.acknowledged.get(key, set()) - self.damaged.get(key, set())
                assert set(command.devices) == whole, "each acknowledged update once"
                assert len(command.devices) == len(set(command.devices))
                wanted = self.sizes[key]
                assert self.settings.quorum.of(wanted) <= len(command.devices) <= wanted
                self.reducing = command
            case Abandon():
                key = (command.round, command.attempt)
                counted = set(self.cohorts[key]) - set(command.missing)
                assert counted == self.acknowledged.get(key, set()) - self.damaged.get(key, set())
            case End():
                assert self.stopping or len(self.committed) == self.settings.rounds
                finished = len(self.committed) == self.settings.rounds
                assert command.status == ("finished" if finished else "stopped")

    @rule(device=strategies.sampled_from(DEVICES), attempt=strategies.integers(0, 1))
    def delivers(self, device: str, attempt: int) -> None:
        """Act like the driver: acknowledge only accepted updates; a repetition changes nothing."""
        current = self.state.open
        round_, number = (current.round, current.attempt - attempt) if current else (1, 1)
        if rejection_reason(self.state, round_, number, device) is None:
            self.acknowledged.setdefault((round_, number), set()).add(device)
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
            self.committed.append(done.devices)
            self.send(Reduced(round=done.round, attempt=done.attempt))
        else:
            self.send(ReductionFailed(round=done.round, attempt=done.attempt, reason="because", transient=transient))
            if transient and not self.stopping:
                assert self.state.open, "what was acknowledged stays"

    @precondition(lambda self: self.reducing is not None)
    @rule(data=strategies.data())
    def updates_are_damaged(self, data: strategies.DataObject) -> None:
        assert self.reducing
        done, self.reducing = self.reducing, None
        devices = data.draw(strategies.lists(strategies.sampled_from(done.devices), min_size=1, unique=True))
        self.damaged.setdefault((done.round, done.attempt), set()).update(devices)
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
            reported=current.reported,
            rejected=current.rejected,
            declined=current.declined,
        )
        self.here, self.timers, self.reducing, self.stopping = set(devices), [], None, False
        self.state = State(committed=self.state.committed, attempt=self.state.attempt, open=kept)
        self.send(Resumed(online=dict.fromkeys(devices, 0)))

    @invariant()
    def a_stop_waits_for_a_reduction_alone(self) -> None:
        assert not self.stopping or self.reducing or self.state.status != "running"

    @invariant()
    def committed_rounds_agree(self) -> None:
        assert self.state.committed == len(self.committed)

    @invariant()
    def it_says_what_it_waits_for_or_something_is_under_way(self) -> None:
        under_way = self.reducing is not None or self.state.status != "running"
        assert under_way or waiting(self.settings, self.state)

    def teardown(self) -> None:
        """Once every device is online and reports, the run ends, whatever happened before."""
        for device in DEVICES:
            self.comes_online(device)
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
        assert self.state.status == ("stopped" if self.stopping and len(self.committed) < 3 else "finished")


TestRuns = Runs.TestCase
TestRuns.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
