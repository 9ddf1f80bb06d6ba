"""Value types of the coordinator, independent of SQL and protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from moonfed.assignment import AttemptId as AttemptId
from moonfed.blobs import BlobRef
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.rounds.events import InAttempt
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.rounds.state import OpenRound, Status
from moonfed.manifest import MODEL

MAX_REASON = 1000  # characters kept of a reason that a device gives or receives
MAX_SAMPLES = 10_000_000  # of one device in one round; more is a mistake, or an attempt to outweigh everybody
Outcome = Literal["accepted", "rejected", "declined"]
EventKind = Literal[
    "waiting",
    "round_opened",
    "progress",
    "update_received",
    "update_rejected",
    "device_declined",
    "device_lost",
    "round_committed",
    "round_abandoned",
    "metrics",
    "ended",
]


def attempt_id(run: str, item: InAttempt | OpenRound) -> AttemptId:
    """Return the attempt that an event or a command belongs to, or that is open."""
    return AttemptId(run=run, round=item.round, attempt=item.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run's settings and inputs, and its status."""

    run: str
    created: float  # seconds since the epoch
    status: Status
    settings: RunSettings
    manifest: BlobRef
    method: str
    initial: BlobRef  # global model 0
    signature: BlobRef | None = None  # of the bundle; None for a run of an earlier release


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """An attempt at a round, with its cohort and outcome."""

    id: AttemptId
    status: Literal["open", "reducing", "committed", "abandoned"]
    cohort: tuple[str, ...]
    counted: tuple[str, ...] = ()
    reason: str = ""
    blobs: Mapping[str, BlobRef] = field(default_factory=dict)  # blobs of a committed global state, by role
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)  # of a committed round's model
    incidents: tuple[Incident, ...] = ()
    bases: Mapping[str, int] = field(
        default_factory=dict
    )  # of an asynchronous round: device to the round it started from

    @property
    def model(self) -> BlobRef | None:
        """A committed round's global model, unless it was deleted since."""
        return self.blobs.get(MODEL)

    @property
    def missing(self) -> tuple[str, ...]:
        """The cohort's devices whose update is not in the model; none in an asynchronous round."""
        if self.bases:
            return ()
        return tuple(device for device in self.cohort if device not in self.counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A device's report on one assignment: an update that was accepted or rejected, or a declined assignment."""

    id: AttemptId
    device: str
    outcome: Outcome
    reason: str = ""
    samples: int = 0
    steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    blobs: Mapping[str, BlobRef] = field(default_factory=dict)  # by role: what the device sent
    decoded: Mapping[str, BlobRef] = field(default_factory=dict)  # by role: the decoded files in the spool

    @property
    def spooled(self) -> dict[str, BlobRef]:
        """Blobs in the spool, by role."""
        return {**self.blobs, **self.decoded}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """A device that has enrolled, or connected without TLS."""

    device: str
    enrolled: float
    last_seen: float
    certificate_expires: float
    platform: Mapping[str, str]
    online: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)  # of one that is online


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """An operator's view of a run, without its rounds."""

    record: RunRecord
    open_round: OpenRound | None = None
    waiting: str = ""
    initial_metrics: Mapping[str, float] = field(default_factory=dict)
    committed: int = 0
    model: BlobRef | None = None  # the newest global model


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """An event published to a run's subscribers."""

    kind: EventKind
    round: int = 0
    attempt: int = 0
    device: str = ""
    devices: tuple[str, ...] = ()
    reason: str = ""
    model: BlobRef | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    fraction: float = 0.0
    run: RunView | None = None
