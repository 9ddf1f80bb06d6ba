"""Events, the state machine's input, and commands, its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOnline:
    """A device came online, or reconnected."""

    device: str
    samples: int = 0  # training samples; 0: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOffline:
    """A device went offline, or is online and not eligible."""

    device: str
    ineligible: str = ""  # if it is online: why it is not eligible


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLeft:
    """A device announced that it stops, and went offline."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The run starts, or resumes after a restart, with the devices that are online then."""

    online: Mapping[str, int] = field(default_factory=dict)  # device to samples, 0: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """An operator stopped the run, or it is `finished` early by its own settings."""

    status: Literal["stopped", "finished"] = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """An operator paused the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    """An operator resumed the paused run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InAttempt:
    """An event or command of one attempt at one round."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAccepted(InAttempt):
    """A device's update was checked and is durable."""

    device: str
    samples: int = 0  # it was trained on; 0: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRejected(InAttempt):
    """A device's update failed the checks."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(InAttempt):
    """A device declined its assignment."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed(InAttempt):
    """The round's deadline has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimedOut(InAttempt):
    """The run has waited for an eligible device for as long as the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(InAttempt):
    """A device has sent no heartbeat within the run's timeout, or was revoked."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(InAttempt):
    """A lost device makes progress again."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDue(InAttempt):
    """The backoff before an attempt is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced(InAttempt):
    """The round's new global model is committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged(InAttempt):
    """These devices' accepted updates were found to be damaged at the reduction."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionFailed(InAttempt):
    """The updates could not be reduced. `transient`: retrying may succeed, for example after a full disk."""

    reason: str
    transient: bool = False


Event = (
    DeviceOnline
    | DeviceOffline
    | DeviceLeft
    | Resumed
    | StopRequested
    | PauseRequested
    | ResumeRequested
    | UpdateAccepted
    | UpdateRejected
    | Declined
    | DeadlinePassed
    | WaitTimedOut
    | Stalled
    | Progressed
    | RetryDue
    | Reduced
    | Damaged
    | ReductionFailed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(InAttempt):
    """Record the round with its cohort."""

    cohort: tuple[str, ...]
    reused: Mapping[str, int] = field(default_factory=dict)  # devices whose update of an earlier attempt counts in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(InAttempt):
    """Record that another device starts from the open round's model."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(InAttempt):
    """Record that these devices join the cohort of the open round, as replacements."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(InAttempt):
    """Send a device its assignment."""

    device: str


TimedEvent = DeadlinePassed | WaitTimedOut | RetryDue


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Deliver this event after a delay."""

    seconds: float
    event: TimedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose(InAttempt):
    """Report that a device is lost, or has left."""

    device: str
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(InAttempt):
    """Record that a device's accepted update was damaged and counts as rejected."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(InAttempt):
    """Reduce these devices' updates, commit the round, and report it."""

    devices: tuple[str, ...]
    bases: Mapping[str, int] = field(default_factory=dict)  # asynchronous: the round that each device started from
    reused: Mapping[str, int] = field(default_factory=dict)  # the earlier attempts that some of the updates are from


STOPPED = "the run was stopped"  # such reasons for abandoning a round are not logged as warnings
EARLY = f"{STOPPED} early, as its settings say"
STOP_REASONS = {"stopped": STOPPED, "finished": EARLY}  # by the status with which the run is to end


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon(InAttempt):
    """Record that the round was abandoned."""

    missing: tuple[str, ...]
    reason: str
    reusable: Mapping[str, int] = field(default_factory=dict)  # devices whose updates the next attempt may count


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPaused:
    """Record whether the run is paused."""

    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Record that the run has ended."""

    status: Literal["finished", "stopped", "failed"]


Command = Open | Join | Replace | Assign | StartTimer | Lose | Discard | Reduce | Abandon | SetPaused | End
