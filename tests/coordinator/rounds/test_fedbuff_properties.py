"""The state machine of an asynchronous run: properties over anything that may happen in any order."""

from __future__ import annotations

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
    DeadlinePassed,
    Declined,
    Discard,
    End,
    Join,
    Open,
    Progressed,
    Reduce,
    ReductionFailed,
    RetryDue,
    SetPaused,
    Stalled,
    StartTimer,
    UpdateRejected,
    WaitTimedOut,
)
from moonfed.coordinator.rounds.fedbuff_state import buffered
from moonfed.coordinator.rounds.protocol import FEDBUFF
from tests.support.fedbuff_run import accepted, reduced
from tests.support.state_machine_fleet import DEVICES, Play

Key = tuple[str, int]


class Runs(Play):
    """Plays coordinator and fleet in any order, and records independently the acknowledged and counted updates."""

    def __init__(self) -> None:
        super().__init__(
            FEDBUFF,
            RunSettings(
                rounds=6,
                cohort=Amount(count=3),
                minimum_devices=2,
                quorum=Amount(fraction=0.5),
                seed=5,
                asynchronous=2,
                max_staleness=2,
                max_attempts=4,
            ),
        )
        self.waiting_for_a_model: set[Key] = set()  # acknowledged, and in no model yet
        self.counted: set[Key] = set()
        self.joined: dict[str, int] = {}  # on record: the newest round that each device began with
        self.answered: set[Key] = set()
        self.declined: set[Key] = set()
        self.committed = 0
        self.opened = 0
        self.overdue = False
        self.fruitless = 0  # deadlines and reductions in a row that made no model, at most

    def obey(self, command: Command) -> None:
        match command:
            case Open():
                self.opened += 1
                assert command.round == self.opened == self.committed + 1, "every round opens once, in order"
                self.joined |= dict.fromkeys(command.cohort, command.round)
                self.overdue = False
            case Join():
                assert command.round == self.opened
                self.joined[command.device] = command.round
            case Assign():
                assert command.device in self.here
                assert not self.paused or command.device in self.before_tasks, "a paused run assigns nothing new"
                assert self.joined[command.device] == command.round, "what it is told is on record"
                assert (command.device, command.round) not in self.answered - self.declined
            case StartTimer():
                self.timers.append(command.event)
            case Reduce():
                assert self.reducing is None
                assert {(device, command.bases[device]) for device in command.devices} == self.waiting_for_a_model
                assert len(command.devices) >= (1 if self.overdue else 2)
                assert all(command.round - base <= 2 for base in command.bases.values())
                self.reducing = command
            case Discard():
                self.waiting_for_a_model.discard((command.device, command.round))
            case Abandon():
                assert command.reason
                self.waiting_for_a_model.clear()
            case SetPaused():
                assert command.paused == self.paused
            case End():
                assert self.stopping or self.committed == 6 or self.fruitless >= 4
                assert (command.status == "failed") == (self.committed < 6 and not self.stopping)
                assert not self.waiting_for_a_model, "it is in a model, or on record with the reason"

    @property
    def before_tasks(self) -> set[str]:
        return set(buffered(self.before).tasks)

    @rule(device=strategies.sampled_from(DEVICES), behind=strategies.integers(0, 3))
    def delivers(self, device: str, behind: int) -> None:
        """Act like the driver: acknowledge only accepted updates, each once."""
        begun = self.committed + 1 - behind
        key = (device, begun)
        if key in self.answered - self.declined:
            return
        if FEDBUFF.rejection_reason(self.settings, self.state, begun, 1, device) is None:
            self.answered.add(key)
            self.waiting_for_a_model.add(key)
        self.send(accepted(device, begun))

    @rule(device=strategies.sampled_from(DEVICES), kind=strategies.sampled_from([UpdateRejected, Declined]))
    def fails(self, device: str, kind: type[UpdateRejected | Declined]) -> None:
        begun = buffered(self.state).tasks.get(device)
        if begun and self.state.status == "running":
            self.answered.add((device, begun))
            if kind is Declined:
                self.declined.add((device, begun))
            self.send(kind(round=begun, attempt=1, device=device))

    @rule(device=strategies.sampled_from(DEVICES), kind=strategies.sampled_from([Stalled, Progressed]))
    def stalls_or_progresses(self, device: str, kind: type[Stalled | Progressed]) -> None:
        self.send(kind(round=self.committed + 1, attempt=1, device=device))

    @precondition(lambda self: self.timers)
    @rule(data=strategies.data())
    def time_passes(self, data: strategies.DataObject) -> None:
        event = data.draw(strategies.sampled_from(self.timers))
        if event == DeadlinePassed(round=self.committed + 1, attempt=1):
            self.overdue = True
        self.fruitless += isinstance(event, DeadlinePassed | WaitTimedOut)
        self.send(event)

    @precondition(lambda self: self.reducing is not None)
    @rule(works=strategies.booleans())
    def reduction_ends(self, works: bool) -> None:
        assert self.reducing
        done, self.reducing = self.reducing, None
        if not works:
            self.fruitless += 1
            self.send(ReductionFailed(round=done.round, attempt=1, reason="because"))
            return
        keys = {(device, done.bases[device]) for device in done.devices}
        assert not keys & self.counted, "no update counts twice"
        self.counted |= keys
        self.waiting_for_a_model -= keys
        self.committed += 1
        self.fruitless = 0
        self.send(reduced(done.round))

    @precondition(lambda self: self.reducing is not None)
    @rule(data=strategies.data())
    def updates_are_damaged(self, data: strategies.DataObject) -> None:
        assert self.reducing
        done, self.reducing = self.reducing, None
        devices = data.draw(strategies.lists(strategies.sampled_from(done.devices), min_size=1, unique=True))
        self.send(Damaged(round=done.round, attempt=1, devices=tuple(devices)))

    @invariant()
    def nothing_acknowledged_is_forgotten(self) -> None:
        now = buffered(self.state)
        if now.status == "running":
            assert {*now.buffer.items(), *now.closing.items()} == self.waiting_for_a_model
            kept = FEDBUFF.needed_attempts(self.settings, now)
            assert {(begun, 1) for _, begun in self.waiting_for_a_model} <= kept, "their files are not deleted"

    @invariant()
    def nobody_is_counted_on_twice(self) -> None:
        now = buffered(self.state)
        if now.open and now.status == "running":
            groups = [set(now.tasks), set(now.buffer), set(now.closing), now.rejected, now.declined]
            assert sum(map(len, groups)) == len(set().union(*groups))
            assert set(now.open.outstanding) == set(now.working)
            assert now.lost <= now.tasks.keys()

    def teardown(self) -> None:
        """Once every device is online and reports, the run ends, whatever happened before."""
        for device in DEVICES:
            self.goes_offline(device)
            self.comes_online(device)
        if self.paused:
            self.is_resumed()
        for _ in range(60):
            now = buffered(self.state)
            if now.status != "running":
                break
            if self.reducing:
                self.reduction_ends(works=True)
            elif now.reduction_error:
                self.send(RetryDue(round=now.number, attempt=1))
            elif now.working:
                device = min(now.working)
                self.delivers(device, now.number - now.tasks[device])
            else:
                self.overdue = True
                self.send(DeadlinePassed(round=now.number, attempt=1))
                if not self.reducing:
                    break
        if self.state.status != "failed":
            assert self.state.status == ("stopped" if self.stopping and self.committed < 6 else "finished")


TestRuns = Runs.TestCase
TestRuns.settings = hypothesis_settings(max_examples=80, stateful_step_count=40, deadline=None)
