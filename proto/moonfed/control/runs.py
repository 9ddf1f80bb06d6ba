"""Runs and their rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.control.devices import DeviceOutcome
from moonfed.control.privacy import PrivacySpent
from moonfed.control.run_settings import RunSettings

RunStatus = Literal["running", "paused", "finished", "stopped", "failed"]
RoundStatus = Literal["committed", "abandoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ineligible:
    """Devices that cannot take part, for one reason."""

    reason: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """The round that is open now."""

    round: int
    attempt: int
    cohort: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()  # devices whose update has arrived
    rejected: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  # devices without a heartbeat for too long
    left: tuple[str, ...] = ()  # devices that have announced that they stop; they may return
    replacements: tuple[str, ...] = ()  # of the cohort, those that joined after the round opened
    seconds: float = 0.0  # since it opened
    target: int = 0  # updates with which it closes
    progress: Mapping[str, float] = field(default_factory=dict)  # fraction of the local training, by device
    reasons: Mapping[str, str] = field(default_factory=dict)  # of rejected and declined devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, without its rounds."""

    run: str
    status: RunStatus
    method: str
    metric: Metric = ACCURACY  # by which its global models are compared
    round: int = 0  # rounds committed so far
    waiting: str = ""  # one sentence about what it waits for; empty: nothing
    reason: str = ""  # why it has failed; empty for other runs
    created: datetime
    model: BlobRef  # the newest global model
    initial_model: BlobRef  # global model 0
    manifest: BlobRef  # of the bundle
    signature: BlobRef | None = None  # of the bundle
    eligible: int = 0  # online devices that rounds are drawn from
    checking: int = 0  # online devices that have not answered yet whether they are eligible
    ineligible: tuple[Ineligible, ...] = ()
    absent_classes: tuple[str, ...] = ()  # of which no eligible device has samples, if all have said which they have
    clipped: Mapping[str, int] = field(default_factory=dict)  # devices clipped in several last rounds: how many
    initial_metrics: Mapping[str, float] = field(default_factory=dict)  # of the initial weights
    open_round: OpenRound | None = None
    privacy: PrivacySpent | None = None  # None: without differential privacy
    settings: RunSettings = field(default_factory=RunSettings)  # `start(bundle, recipe=run.settings)` repeats the run

    @property
    def rounds(self) -> int:
        """The number of rounds to commit."""
        return self.settings.rounds

    @property
    def active(self) -> bool:
        """True until the run has finished, was stopped or has failed."""
        return self.status in ("running", "paused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An update that robust aggregation changed or excluded, or reported as far from the others."""

    device: str
    description: str  # one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A committed or abandoned attempt at a round."""

    run: str
    round: int
    attempt: int
    status: RoundStatus
    # Of its global model on the evaluator's test set; None: not evaluated, or no classification.
    accuracy: float | None = field(init=False)
    loss: float | None = field(init=False)
    train_loss: float | None = field(init=False)  # mean of the cohort
    seconds: float = 0.0
    updates: int = 0  # accepted, in an abandoned round, too
    counted: tuple[str, ...] = ()  # devices whose update was reduced; a reducer may have left it out
    missing: tuple[str, ...] = ()  # devices of the cohort whose update was not
    reason: str = ""  # of an abandoned round
    model: BlobRef | None = None  # its global model; None: deleted, or abandoned
    metrics: Mapping[str, float] = field(default_factory=dict)  # of its global model, all of them
    incidents: tuple[Incident, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds: see `moonfed.coordinator.rounds.phases`
    outcomes: Mapping[str, int] = field(default_factory=dict)  # number of devices by outcome
    received_bytes: int = 0  # of the files of accepted updates
    sent_bytes: int = 0  # of the model's files that devices were assigned, each device's once
    personal_lost: int = 0  # devices that began with the bundle's personal tensors again, as they have lost their own

    def __post_init__(self) -> None:
        for name in ("accuracy", "loss", "train_loss"):
            object.__setattr__(self, name, self.metrics.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcomes:
    """The outcome of each device in an attempt that has ended, by the devices' present names."""

    run: str
    round: int
    attempt: int
    status: RoundStatus
    time: datetime  # of its end
    outcomes: Mapping[str, DeviceOutcome] = field(default_factory=dict)  # removed devices are left out
