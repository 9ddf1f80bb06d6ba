"""Deployments, the devices that they have chosen, and the version that each device is to predict with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from moonfed.fleet.target_release import InstalledRelease
from moonfed.labels import check_labels
from moonfed.models.release_manifest import FLOAT32, MAX_VERSION, VARIANT, require_release_name
from moonfed.validate import require, require_at_least, require_whole

Status = Literal["active", "paused", "rolled-back"]
State = Literal["pending", "accepted", "installed", "declined", "failed", "fell-back"]  # as the device reported
SETTLED = ("declined", "failed", "fell-back")  # until the device has another fingerprint
# For operators also: a newer deployment gives the device its version; and of a deployment that was rolled back, the
# device still predicts with its version; or no longer, or never did.
ShownState = State | Literal["superseded", "returning", "returned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A version on its way to some devices; raises InvalidInput naming a wrong field."""

    name: str
    version: int
    number: int = 0  # from 1; 0: not recorded yet
    variant: str = FLOAT32
    labels: Mapping[str, str] = field(default_factory=dict)
    trusted_labels: bool = False  # labels that devices report do not count
    percent: float = 100.0  # of the devices with these labels
    max_drop: float = 1.0  # points of accuracy on a device's holdout below its current version
    status: Status = "active"
    created: float = 0.0
    operator: str = ""

    def __post_init__(self) -> None:
        require_release_name("name", self.name)
        require_whole("version", self.version, 1, MAX_VERSION)
        require(bool(VARIANT.fullmatch(self.variant)), "variant", self.variant, "a name such as 'float32'")
        check_labels(self.labels)
        require_percent(self.percent)
        require_at_least("max-drop", self.max_drop, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A device that a deployment has chosen, with what it last reported about that."""

    deployment: int
    device: str
    state: State = "pending"
    had: bool = False  # it has predicted with the version, and may return to it
    reason: str = ""
    score: float | None = None  # of the version on the device's holdout
    current_score: float | None = None  # of the version before
    samples: int = 0  # in the holdout
    fingerprint: str = ""  # under which the device decided
    time: float = 0.0  # of the report


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The version that a device is to predict with."""

    deployment: int
    version: int  # 0: none
    variant: str = ""
    max_drop: float = 0.0
    roll_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device and one release: all that decides about its target."""

    deployments: Mapping[int, Deployment]
    choices: tuple[Choice, ...]  # newest first
    installed: InstalledRelease

    def target(self) -> Target | None:
        """Return the version that the device is to predict with; None: it may go on with whatever it has."""
        withdrawn = self.withdrawn
        for choice, deployment in self._standing():
            waits = choice.state == "pending" and deployment.status == "active"
            if choice.had or choice.state == "accepted" or waits:
                return Target(
                    deployment=deployment.number,
                    version=deployment.version,
                    variant=deployment.variant,
                    max_drop=deployment.max_drop,
                    roll_back=choice.had or withdrawn,
                )
        if withdrawn:
            return Target(deployment=self.choices[0].deployment, version=0)
        return None

    @property
    def withdrawn(self) -> bool:
        """True if only deployments that were rolled back gave the device its version."""
        if not self.installed.version:
            return False
        given_by = [
            self.deployments[choice.deployment].status
            for choice in self.choices
            if (choice.had or choice.state == "accepted") and self.is_installed(choice)
        ]
        return bool(given_by) and all(status == "rolled-back" for status in given_by)

    def shown_state(self, number: int) -> ShownState:
        """Return the device's state in one deployment that has chosen it, for operators."""
        choice = next(choice for choice in self.choices if choice.deployment == number)
        if self.deployments[number].status == "rolled-back":
            return "returning" if self.withdrawn and self.is_installed(choice) else "returned"
        if choice is not self.newest:
            return "superseded"
        if choice.state == "installed" and not self.is_installed(choice):
            return "pending"
        return choice.state

    def stranded(self, number: int) -> bool:
        """Return whether the device has no version once a deployment and all newer ones are rolled back."""
        after = {
            one: replace(deployment, status="rolled-back") if one >= number else deployment
            for one, deployment in self.deployments.items()
        }
        target = replace(self, deployments=after).target()
        return self.installed.version != 0 and target is not None and target.version == 0

    @property
    def newest(self) -> Choice:
        """The newest choice of a deployment that was not rolled back, or else of any."""
        return next((choice for choice, _ in self._standing()), self.choices[0])

    def is_installed(self, choice: Choice) -> bool:
        """Return whether the device predicts with the version of the deployment that made a choice."""
        deployment = self.deployments[choice.deployment]
        installed = self.installed
        return (deployment.version, deployment.variant) == (installed.version, installed.variant)

    def _standing(self) -> Iterable[tuple[Choice, Deployment]]:
        for choice in self.choices:
            deployment = self.deployments[choice.deployment]
            if deployment.status != "rolled-back":
                yield choice, deployment


def differs(target: Target, installed: InstalledRelease) -> bool:
    """Return whether a device does not predict with its target."""
    if not target.version:
        return installed.version != 0
    return (target.version, target.variant) != (installed.version, installed.variant)


def require_percent(percent: float) -> None:
    """Raise InvalidInput unless a share of the devices can be chosen."""
    require(0 < percent <= 100, "percent", percent, "a number above 0, up to 100")
