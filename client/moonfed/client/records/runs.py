"""Runs and their rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from moonfed.control.run_settings import RunSettings

RunStatus = Literal["running", "paused", "finished", "stopped", "failed", "unspecified"]
RoundStatus = Literal["committed", "abandoned", "unspecified"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ineligible:
    """Devices that cannot take part in a run, for one reason."""

    reason: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """The round that is open now."""

    round: int
    attempt: int
    cohort: tuple[str, ...]
    reported: tuple[str, ...]  # devices whose update has arrived
    rejected: tuple[str, ...]
    declined: tuple[str, ...]
    lost: tuple[str, ...]  # devices without a heartbeat for too long
    left: tuple[str, ...]  # devices that have announced that they stop
    replacements: tuple[str, ...]  # of the cohort, those that joined after the round opened
    seconds: float  # since it opened
    target: int  # updates with which it closes
    progress: Mapping[str, float]  # fraction of the local training, by device
    reasons: Mapping[str, str]  # of rejected and declined devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, without its rounds."""

    run: str
    status: RunStatus
    method: str
    round: int  # rounds committed so far
    rounds: int  # to commit
    waiting: str  # one sentence about what it waits for; empty: nothing
    reason: str  # why it has failed; empty for other runs
    created: datetime
    model: str  # sha256 of the newest global model
    manifest: str  # sha256 of the bundle's manifest
    eligible: int  # online devices that rounds are drawn from
    checking: int  # online devices that have not answered yet whether they are eligible
    ineligible: tuple[Ineligible, ...]
    absent_classes: tuple[str, ...]  # of which no eligible device has samples; none with `private_classes`
    clipped: Mapping[str, int]  # devices whose updates were clipped in their last rounds, two or more: how many
    initial_metrics: Mapping[str, float]  # of the initial weights
    open_round: OpenRound | None
    settings: RunSettings  # all of them: `start(bundle, recipe=run.settings)` starts the same run again

    @property
    def active(self) -> bool:
        """True until the run has finished, was stopped or has failed."""
        return self.status in ("running", "paused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An update that robust aggregation changed or excluded."""

    device: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A committed or abandoned round."""

    run: str
    round: int
    attempt: int
    status: RoundStatus
    accuracy: float | None  # of its global model on the evaluator's test set; None: not evaluated
    loss: float | None
    train_loss: float | None  # mean of the cohort
    seconds: float
    updates: int  # accepted, in an abandoned round, too
    counted: tuple[str, ...]  # devices whose update is in the model
    missing: tuple[str, ...]  # devices of the cohort whose update is not
    reason: str  # of an abandoned round
    model: str | None  # sha256 of its global model; None: deleted, or abandoned
    metrics: Mapping[str, float]  # all of them, by name
    incidents: tuple[Incident, ...]
    phases: Mapping[str, float]  # seconds: training, upload, waiting, reduction, commit; empty: unknown
    outcomes: Mapping[str, int]  # number of devices by outcome, such as counted, declined or late
    received_bytes: int  # of the files of accepted updates
    sent_bytes: int  # of the model's files that devices were assigned
