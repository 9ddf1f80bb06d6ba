"""Target releases, installed releases and reports on them, as coordinator and devices exchange them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from moonfed.blobs.store import BlobRef
from moonfed.bundle.target import Kind
from moonfed.errors import InvalidInput
from moonfed.models.release_manifest import MAX_BYTES, MAX_VERSION, VARIANT, require_release_name
from moonfed.signing.bundle_signature import MAX_BYTES as MAX_SIGNATURE_BYTES
from moonfed.tasks.figure import SHARES
from moonfed.validate import require, require_at_least, require_one_of, require_whole

MAX_INSTALLED = 64  # names of releases on one device
MAX_DEPLOYMENT = (1 << 53) - 1
Outcome = Literal["accepted", "declined", "installed", "failed", "fell-back"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRelease:
    """The version of a released model that a device is to predict with; TargetRelease in fleet.proto."""

    name: str
    deployment: int
    version: int = 0  # 0: none; the device removes the model
    variant: str = ""
    manifest: BlobRef | None = None  # None for version 0
    signature: BlobRef | None = None
    max_drop: float = 0.0  # points of holdout accuracy below the current version's
    roll_back: bool = False  # it is not compared with the current version

    def __post_init__(self) -> None:
        require_release_name("name", self.name)
        require_whole("deployment", self.deployment, 0, MAX_DEPLOYMENT)
        require_whole("version", self.version, 0, MAX_VERSION)
        require_at_least("max_drop", self.max_drop, 0)
        if self.version:
            require(bool(VARIANT.fullmatch(self.variant)), "variant", self.variant, "a name such as 'float32'")
            _require_file("manifest", self.manifest, MAX_BYTES)
            _require_file("signature", self.signature, MAX_SIGNATURE_BYTES)

    def __str__(self) -> str:
        return f"version {self.version} of model {self.name}" if self.version else f"removal of model {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledRelease:
    """The version of a released model that a device predicts with; InstalledRelease in fleet.proto."""

    name: str
    version: int = 0  # 0: none
    variant: str = ""
    previous: int = 0  # that it retains; 0: none
    deployment: int = 0  # the latest whose target it has reported on

    def __post_init__(self) -> None:
        require_release_name("name", self.name)
        require_whole("version", self.version, 0, MAX_VERSION)
        require_whole("previous", self.previous, 0, MAX_VERSION)
        require_whole("deployment", self.deployment, 0, MAX_DEPLOYMENT)
        if self.version:
            require(bool(VARIANT.fullmatch(self.variant)), "variant", self.variant, "a name such as 'float32'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReport:
    """A device's report on a target release; ReportReleaseRequest in fleet.proto."""

    device: str
    name: str
    deployment: int
    version: int  # the target's
    outcome: Outcome
    installed: InstalledRelease  # afterwards
    reason: str = ""
    score: float | None = None  # of the target on the device's holdout, by the kind of target: see moonfed.tasks.figure
    current_score: float | None = None  # of the version that it predicted with
    samples: int = 0  # in the holdout
    fingerprint: str = ""  # under which it was decided

    def __post_init__(self) -> None:
        require_release_name("name", self.name)
        require_whole("deployment", self.deployment, 0, MAX_DEPLOYMENT)
        require_whole("version", self.version, 0, MAX_VERSION)
        require_one_of("outcome", self.outcome, OUTCOMES)
        if self.installed.name != self.name:
            raise InvalidInput(f"installed names {self.installed.name!r}; it must be {self.name!r}, the report's name")
        for field in ("score", "current_score"):
            value = getattr(self, field)
            if value is not None:
                require(0 <= value < math.inf, field, value, "a finite number, 0 or more")

    def require_fits(self, kind: Kind) -> None:
        """Raise InvalidInput for a score that a release with this kind of target cannot have."""
        for field in ("score", "current_score"):
            value = getattr(self, field)
            if value is not None and kind in SHARES:
                require(value <= 1, field, value, "a number from 0 to 1")


def _require_file(field: str, ref: BlobRef | None, most: int) -> None:
    if ref is None:
        raise InvalidInput(f"{field} is missing; a target release with a version needs it")
    if ref.size > most:
        raise InvalidInput(f"{field} has {ref.size} bytes; it must be at most {most}")
