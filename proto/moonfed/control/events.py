"""Events of a watched run: a union of dataclasses, for `match`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from moonfed.blobs.store import BlobRef
from moonfed.control.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The run as it is: the first event; again after an interruption, following the missed rounds."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The run waits, between two rounds."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOpened:
    """A round has opened, or a new attempt at it."""

    round: int
    attempt: int
    cohort: tuple[str, ...]
    reused: tuple[str, ...] = ()  # devices whose update of an earlier attempt counts


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesJoined:
    """Devices have joined the open round in place of others."""

    round: int
    attempt: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A device has reported the fraction of its local training that is done."""

    round: int
    attempt: int
    device: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReceived:
    """A device's update has been accepted."""

    round: int
    attempt: int
    device: str
    pending: int  # devices that the round still waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRejected:
    """A device's update has been rejected."""

    round: int
    attempt: int
    device: str
    reason: str
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDeclined:
    """A device has declined its assignment."""

    round: int
    attempt: int
    device: str
    reason: str
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLost:
    """A device has sent no heartbeat for too long, or was revoked."""

    round: int
    attempt: int
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLeft:
    """A device has announced that it stops."""

    round: int
    attempt: int
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommitted:
    """A round has made a new global model."""

    round: int
    attempt: int
    counted: tuple[str, ...]  # devices whose update is in the model
    model: BlobRef | None  # None: it was deleted before the watch resumed
    metrics: Mapping[str, float] = field(default_factory=dict)
    incidents: str = ""  # one sentence about updates that were changed or excluded; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAbandoned:
    """A round has closed without a new global model."""

    round: int
    attempt: int
    missing: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRecorded:
    """An evaluator has recorded metrics of a global model."""

    round: int  # 0: the initial weights
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Paused:
    """An operator has paused the run."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """An operator has resumed the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The connection was lost; the watch reconnects, and reports the rounds missed meanwhile and a snapshot."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run has finished, was stopped or has failed: the last event."""

    run: Run


RunEvent: TypeAlias = (
    Snapshot
    | Waiting
    | RoundOpened
    | DevicesJoined
    | Progress
    | UpdateReceived
    | UpdateRejected
    | DeviceDeclined
    | DeviceLost
    | DeviceLeft
    | RoundCommitted
    | RoundAbandoned
    | MetricsRecorded
    | Paused
    | Resumed
    | Ended
)
Event: TypeAlias = RunEvent | Interrupted  # the latter only from a client's watch
NAMES: Mapping[type[Any], str] = {
    kind: re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Event)
}
KINDS: Mapping[str, type[Any]] = {NAMES[kind]: kind for kind in get_args(RunEvent)}
