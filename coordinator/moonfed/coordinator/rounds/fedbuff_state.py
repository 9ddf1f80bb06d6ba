"""The state of an asynchronous run, the reason that it waits, and the updates that it accepts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds import status_text
from moonfed.coordinator.rounds.state import NOBODY, Names, State

ATTEMPT = 1  # asynchronous rounds are not retried: updates stay in the buffer
Begun = Mapping[str, int]  # device to the round whose model it started from


@dataclass(frozen=True, slots=True, kw_only=True)
class FedBuffState(State):
    """The state of an asynchronous run. A device is in at most one of tasks, buffer, closing, rejected and declined."""

    tasks: Begun = field(default_factory=dict)  # devices that are training, including the lost
    lost: Names = NOBODY  # not assigned until their next heartbeat, even when their work is too stale
    buffer: Begun = field(default_factory=dict)  # updates that are in no model yet
    closing: Begun = field(default_factory=dict)  # updates that are being reduced
    rejected: Names = NOBODY  # these two are not assigned until the next model
    declined: Names = NOBODY
    overdue: bool = False
    fruitless: int = 0  # attempts in a row, each until a deadline or a reduction, that made no model
    setback: str = ""  # why the last of them made none

    @property
    def working(self) -> Collection[str]:
        """The devices whose updates the round waits for."""
        return self.tasks.keys() - self.lost

    @property
    def failed_attempts(self) -> int:
        """Number of attempts in a row that made no model."""
        return self.fruitless

    @property
    def number(self) -> int:
        """Number of the open round, or of the next one to open."""
        return self.committed + 1


def buffered(state: State) -> FedBuffState:
    """Narrow the state's type: `FedBuffRounds.first` is its first value."""
    assert isinstance(state, FedBuffState)  # noqa: S101 - our own invariant
    return state


def needed_attempts(settings: RunSettings, state: State) -> frozenset[tuple[int, int]]:
    """Return the (round, attempt) pairs that buffered and future updates may have started from."""
    now = buffered(state)
    if now.status != "running":
        return frozenset()
    oldest = max(1, now.number - settings.max_staleness)
    return frozenset((round_, ATTEMPT) for round_ in range(oldest, now.number + 1))


def awaited(state: State) -> dict[str, tuple[int, int]]:
    """Return the devices that are training, the lost included, with the (round, attempt) that each started from."""
    return {device: (round_, ATTEMPT) for device, round_ in buffered(state).tasks.items()}


def rejection_reason(settings: RunSettings, state: State, round_: int, attempt: int, device: str) -> str | None:
    """Return why an update that started from that round's model is rejected now; None if it is accepted."""
    now, most = buffered(state), settings.max_staleness
    if now.open is None or attempt != ATTEMPT or not 1 <= round_ <= now.number:
        return f"round {round_}, attempt {attempt} is not open; {status_text.position(now)}"
    if now.open.reducing and (now.number >= settings.rounds or now.stopping):  # no later round would count it
        return f"round {now.number} is the run's last, and has closed"
    staleness = now.number + now.open.reducing - round_  # by the round that would count it
    if staleness > most:
        return (
            f"the update of {device!r} began {staleness} models ago, and at most {most} are allowed; "
            f"{status_text.position(now)}"
        )
    if now.tasks.get(device) != round_:
        return f"device {device!r} has no pending update for round {round_}; {status_text.position(now)}"
    return None


def waiting(
    settings: RunSettings,
    state: State,
    ineligible: Mapping[str, str] = status_text.NOT_KNOWN,
    silence: Mapping[str, float] = status_text.NOT_KNOWN,
) -> str:
    """Describe what the run waits for: see `status_text.waiting`."""
    now = buffered(state)
    if now.open is None or now.status != "running":
        return status_text.waiting(settings, state, ineligible, silence)
    if now.open.reducing:
        return status_text.stops_after(now)
    if now.reduction_error:
        return status_text.reduction_failure(now)
    wanted = settings.asynchronous
    has = f"round {now.number} has {len(now.buffer)} of {wanted} updates"
    if now.paused:
        has = f"{has}; paused: no device is assigned until the run is resumed"
    if not now.working and now.paused:
        return has
    if not now.working:
        return f"{has} and waits for more devices: none is training{status_text.not_eligible(ineligible)}"
    late = status_text.listed(sorted(now.working), status_text.absence(state, silence))
    return f"{has}; training: {late}"
