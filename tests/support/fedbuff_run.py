"""An asynchronous run with a buffer of two updates, for tests of its state machine."""

from __future__ import annotations

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.events import Assign, Command, Event, Reduced, UpdateAccepted
from moonfed.coordinator.rounds.fedbuff_state import FedBuffState, buffered
from moonfed.coordinator.rounds.protocol import FEDBUFF
from moonfed.coordinator.rounds.state import State
from tests.support import state_machine_fleet

TWO = RunSettings(
    rounds=5,
    minimum_devices=3,
    quorum=Amount(fraction=0.5),
    deadline=100,
    asynchronous=2,
    max_staleness=1,
)


def after(
    *happened: Event, state: State | None = None, settings: RunSettings = TWO
) -> tuple[FedBuffState, list[Command]]:
    """Return the state after some events, and all commands on the way."""
    now, done = state_machine_fleet.after(settings, *happened, state=state)
    return buffered(now), done


def accepted(name: str, begun: int = 1) -> Event:
    return UpdateAccepted(round=begun, attempt=1, device=name)


def reduced(round_: int) -> Event:
    return Reduced(round=round_, attempt=1)


def assigned(commands: list[Command]) -> list[tuple[str, int]]:
    return [(command.device, command.round) for command in commands if isinstance(command, Assign)]


def rejection_reason(state: State, round_: int, device: str, attempt: int = 1) -> str | None:
    return FEDBUFF.rejection_reason(TWO, state, round_, attempt, device)
