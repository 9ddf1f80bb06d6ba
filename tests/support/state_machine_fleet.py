"""Coordinator and fleet as a run's state machine meets them, for tests of both kinds of rounds."""

from __future__ import annotations

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.events import (
    Command,
    DeviceLeft,
    DeviceOffline,
    DeviceOnline,
    Event,
    PauseRequested,
    Reduce,
    ResumeRequested,
    StopRequested,
)
from moonfed.coordinator.rounds.protocol import RoundProtocol, round_protocol
from moonfed.coordinator.rounds.state import State

DRAW = Draw(bytes(range(32)))
DEVICES = [f"cam-{number}" for number in range(7)]


def devices_online(*names: str) -> list[Event]:
    return [DeviceOnline(device=name) for name in names]


def only(commands: list[Command], kind: type[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, kind)]


def after(settings: RunSettings, *happened: Event, state: State | None = None) -> tuple[State, list[Command]]:
    """The state of a run after some events, and all commands on the way."""
    kind, done = round_protocol(settings), list[Command]()
    state = state or kind.first
    for event in happened:
        state, commands = kind.step(settings, DRAW, state, event)
        done += commands
    return state, done


class Play(RuleBasedStateMachine):
    """Devices that come and go and an operator who may stop the run, in any order; `obey` checks the commands."""

    def __init__(self, kind: RoundProtocol, settings: RunSettings) -> None:
        super().__init__()
        self.kind, self.settings, self.state = kind, settings, kind.first
        self.timers: list[Event] = []
        self.reducing: Reduce | None = None
        self.here: set[str] = set()
        self.before = self.state  # the latest event
        self.stopping = self.paused = self.stops_at_all = False

    def send(self, event: Event) -> None:
        again = self.kind.step(self.settings, DRAW, self.state, event)
        self.before = self.state
        self.state, commands = self.kind.step(self.settings, DRAW, self.state, event)
        assert again == (self.state, commands), "the same event in the same state has the same consequences"
        for command in commands:
            self.obey(command)

    def obey(self, command: Command) -> None:
        raise NotImplementedError

    @initialize(stops=strategies.booleans())
    def decide(self, stops: bool) -> None:
        """Return True rarely, so that most sequences contain no stop."""
        self.stops_at_all = stops

    @rule(device=strategies.sampled_from(DEVICES))
    def comes_online(self, device: str) -> None:
        self.here.add(device)
        self.send(DeviceOnline(device=device))

    @rule(device=strategies.sampled_from(DEVICES))
    def goes_offline(self, device: str) -> None:
        self.here.discard(device)
        self.send(DeviceOffline(device=device))

    @rule(device=strategies.sampled_from(DEVICES))
    def leaves(self, device: str) -> None:
        self.here.discard(device)
        self.send(DeviceLeft(device=device))

    @rule(device=strategies.sampled_from(DEVICES))
    def is_ineligible(self, device: str) -> None:
        self.here.discard(device)
        self.send(DeviceOffline(device=device, ineligible="without a label"))

    @precondition(lambda self: self.stops_at_all)
    @rule()
    def is_paused(self) -> None:
        if self.state.status == "running":
            self.paused = True
            self.send(PauseRequested())

    @rule()
    def is_resumed(self) -> None:
        if self.state.status == "running":
            self.paused = False
            self.send(ResumeRequested())

    @precondition(lambda self: self.stops_at_all)
    @rule()
    def is_stopped(self) -> None:
        self.stopping = True
        self.send(StopRequested())
