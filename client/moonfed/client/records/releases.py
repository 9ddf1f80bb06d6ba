"""Releases: versions of named models, and their deployments to devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

DeploymentStatus = Literal["active", "paused", "rolled-back", "unspecified"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One version of a released model."""

    name: str
    version: int
    created: datetime
    operator: str  # who created it
    run: str
    round: int
    accuracy: float | None  # of its evaluation, 0 to 1
    samples: int  # of its evaluation
    classes: tuple[str, ...]
    variants: Mapping[str, str]  # sha256 of the ONNX file, by name such as "float32"
    manifest: str  # sha256
    signature: str  # sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A version on its way to some devices."""

    name: str
    number: int  # from 1, for each name
    version: int
    variant: str
    status: DeploymentStatus
    percent: float  # of the devices with the labels
    labels: Mapping[str, str]
    trusted_labels: bool
    max_drop: float  # points of accuracy on a device's holdout below its current version
    created: datetime
    operator: str  # who deployed it
    matching: int  # known devices with the labels, revoked ones excluded
    chosen: int  # devices
    states: Mapping[str, int]  # number of chosen devices by state
    stranded: int  # devices left without any version once this and all newer deployments are rolled back


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedDevice:
    """A device and the version that it is to predict with."""

    device: str
    online: bool
    deployment: int  # the newest that chose it and is not rolled back; if all are, the newest of them
    version: int  # of that deployment, even if it is rolled back: see `state`
    variant: str
    state: str  # pending, accepted, installed, declined, failed, fell-back, superseded, returning or returned
    reason: str
    score: float | None  # of the target on the device's holdout, 0 to 1
    current_score: float | None
    samples: int  # in the holdout
    installed: int  # the version that it predicts with, as last reported; 0: none
    previous: int  # that it retains
    reported: datetime | None
