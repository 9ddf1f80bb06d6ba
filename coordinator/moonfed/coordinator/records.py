"""Value types of the coordinator, independent of SQL and protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import ACCURACY, MODEL, Metric
from moonfed.control.devices import Device, DeviceOutcome
from moonfed.control.evaluations import DeviceScore
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.rounds.events import InAttempt
from moonfed.coordinator.rounds.state import ACTIVE, OpenRound, RunStatus
from moonfed.errors import InvalidInput
from moonfed.fleet.assignment import AttemptId as AttemptId
from moonfed.fleet.evaluation import HoldoutScores
from moonfed.models.release_manifest import ReleaseManifest
from moonfed.transport.identity import Role

MAX_REASON = 1000  # characters kept of a reason that a device gives or receives
MAX_FINGERPRINT = 64  # characters of a device's fingerprint
MAX_SAMPLES = 10_000_000  # of one device in one round; more is a mistake, or an attempt to outweigh everybody
Outcome = Literal["accepted", "rejected", "declined"]


def attempt_id(run: str, item: InAttempt | OpenRound) -> AttemptId:
    """Return the attempt that an event or a command belongs to, or that is open."""
    return AttemptId(run=run, round=item.round, attempt=item.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run's settings and inputs, and its status."""

    run: str
    created: float  # seconds since the epoch
    status: RunStatus
    settings: RunSettings
    manifest: BlobRef
    signature: BlobRef  # of the bundle
    method: str
    metric: Metric = ACCURACY  # by which its global models are compared
    initial: BlobRef  # global model 0
    reason: str = ""  # of a failed run

    @property
    def active(self) -> bool:
        """True until the run has ended."""
        return self.status in ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """An attempt at a round, with its cohort and outcome."""

    id: AttemptId
    status: Literal["open", "reducing", "committed", "abandoned"]
    cohort: tuple[str, ...]
    counted: tuple[str, ...] = ()
    reason: str = ""
    blobs: Mapping[str, BlobRef] = field(default_factory=dict)  # blobs of a committed global state, by role
    opened: float = 0.0  # seconds since the epoch
    seconds: float = 0.0
    updates: int = 0  # accepted, once the round has ended: of an abandoned one, too
    metrics: Mapping[str, float] = field(default_factory=dict)  # of a committed round's model
    incidents: tuple[Incident, ...] = ()
    # Of an asynchronous round: by device, the round that it started from.
    bases: Mapping[str, int] = field(default_factory=dict)
    replacements: tuple[str, ...] = ()  # devices of the cohort that joined after the draw
    reused: Mapping[str, int] = field(default_factory=dict)  # device to the earlier attempt that its update is from
    reusable: Mapping[str, int] = field(default_factory=dict)  # the same, for the attempt after an abandoned one
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds of an ended round by phase, if measured
    outcomes: Mapping[str, int] = field(default_factory=dict)  # of an ended round: number of devices by outcome
    received_bytes: int = 0  # of the files of accepted updates
    sent_bytes: int = 0  # of the files that devices were assigned, each device's once

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
    personal_lost: bool = False  # it has lost its personal tensors, and began with the bundle's again

    @property
    def spooled(self) -> dict[str, BlobRef]:
        """Blobs in the spool, by role."""
        return {**self.blobs, **self.decoded}


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibilityReport:
    """A device's eligibility report for a run; void once the device has another fingerprint."""

    device: str
    fingerprint: str  # of the device's data, limits and release
    reason: str = ""  # why it is ineligible; empty: it is eligible
    classes: bytes = b""  # that it has: moonfed.fleet.class_bits; empty: it does not say

    def __post_init__(self) -> None:
        if len(self.fingerprint) > MAX_FINGERPRINT or not self.fingerprint.isprintable():
            raise InvalidInput(f"fingerprint must be at most {MAX_FINGERPRINT} printable characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptMeasurements:
    """The figures of an attempt that ends, as far as only the coordinator that drives it knows them."""

    phases: Mapping[str, float] = field(default_factory=dict)  # seconds: see `moonfed.coordinator.rounds.phases`
    undelivered: Mapping[str, tuple[DeviceOutcome, str]] = field(default_factory=dict)  # outcome and reason by device
    training: Mapping[str, float] = field(default_factory=dict)  # seconds by device
    received_bytes: int = 0
    personal_lost: int = 0  # devices that began with the bundle's personal tensors again
    assigned_bytes: int = 0  # of the files that one device is assigned


NOT_MEASURED = AttemptMeasurements()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceQuery:
    """Conditions on devices, all of which must hold."""

    labels: Mapping[str, str] = field(default_factory=dict)
    online: bool = False  # only those that are
    ineligible: str = ""  # a run; only those that cannot take part in it

    def matches(self, device: Device) -> bool:
        """Return True if the device fulfils all conditions."""
        labelled = self.labels.items() <= device.labels.items()
        eligible = bool(self.ineligible) and not device.ineligible
        return labelled and not eligible and (device.online or not self.online)


EVERY_DEVICE = DeviceQuery()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRecord:
    """One version of a named model."""

    manifest: ReleaseManifest
    ref: BlobRef  # of the manifest
    signature: BlobRef
    created: float  # seconds since the epoch
    operator: str  # who created it


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    """A certificate of an operator."""

    operator: str
    role: Role
    serial: str
    public_key_sha256: str
    created: float  # seconds since the epoch
    created_by: str  # the operator; empty: the coordinator itself
    expires: float
    revoked: float = 0.0  # 0: not revoked


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """A device's answer to an evaluation: its scores, or why it declines."""

    device: str
    run: str
    round: int
    number: int
    model: str  # sha256
    scores: HoldoutScores | None = None
    reason: str = ""  # without scores

    @property
    def key(self) -> tuple[str, int, int]:
        """Identify the evaluation among those of all runs."""
        return self.run, self.round, self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """A global model's evaluation on devices."""

    run: str
    round: int
    number: int  # of this model's evaluations, from 1
    model: BlobRef
    opened: float  # seconds since the epoch
    deadline: float
    closed: float = 0.0  # 0: devices may still answer
    scores: tuple[DeviceScore, ...] = ()  # by device
    declined: Mapping[str, str] = field(default_factory=dict)  # reasons by device
    metric: Metric = ACCURACY  # of the scores
    pending: frozenset[str] = frozenset()  # devices that have not answered
    gone: frozenset[str] = frozenset()  # of those: revoked or removed
    seconds_left: float = 0.0  # until the deadline

    @property
    def key(self) -> tuple[str, int, int]:
        """Identify the evaluation among those of all runs."""
        return self.run, self.round, self.number
