"""Releases: versions of named models, and their deployments to devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.bundle.target import NO_TARGET, TargetSpec

DeploymentStatus = Literal["active", "paused", "rolled-back"]
DeployedState = Literal[
    "pending", "accepted", "installed", "declined", "failed", "fell-back", "superseded", "returning", "returned"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of a released model."""

    name: str
    version: int
    created: datetime
    operator: str = ""  # who created it
    run: str
    round: int
    metric: Metric = ACCURACY  # by which versions are compared
    score: float | None = None  # of its evaluation
    samples: int = 0  # of its evaluation
    target: TargetSpec = NO_TARGET  # what it predicts
    variants: Mapping[str, BlobRef] = field(default_factory=dict)  # ONNX files, by name such as "float32"
    manifest: BlobRef
    signature: BlobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A version on its way to some devices.

    Deployments of a model stack: a device's target is that of the newest one which has chosen it and is not rolled
    back; if the device declined or failed that one, or has yet to begin it while it is paused, an older one applies.
    """

    name: str
    number: int  # from 1, for each name
    version: int
    variant: str = "float32"
    status: DeploymentStatus = "active"
    percent: float = 100.0  # of the devices with the labels
    labels: Mapping[str, str] = field(default_factory=dict)
    trusted_labels: bool = False
    max_drop: float = 1.0  # on a device's holdout below its current version: points of shares, percent of other metrics
    created: datetime
    operator: str = ""  # who deployed it
    matching: int = 0  # known devices with the labels, revoked ones excluded
    chosen: int = 0  # devices
    states: Mapping[str, int] = field(default_factory=dict)  # number of chosen devices by `DeployedState`
    stranded: int = 0  # devices left without any version once this and all newer deployments are rolled back


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedDevice:
    """A device and the version that it is to predict with."""

    device: str
    online: bool = False
    deployment: int  # the newest that chose it and is not rolled back; if all are, the newest of them
    version: int  # of that deployment, even if it is rolled back: see `state`
    variant: str = "float32"
    state: DeployedState
    reason: str = ""
    score: float | None = None  # of the target on the device's holdout, see `moonfed.tasks.figure`
    current_score: float | None = None
    samples: int = 0  # in the holdout
    installed: int = 0  # the version that it predicts with, as last reported; 0: none
    previous: int = 0  # that it retains
    reported: datetime | None = None
