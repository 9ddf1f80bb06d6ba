"""The devices that a deployment chooses. A chosen device stays chosen, and widening only adds devices."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from moonfed.coordinator.deployments.state import Deployment
from moonfed.errors import InvalidInput
from moonfed.labels import lacking, write_labels

ROUNDING = 1e-9  # of a percentage, so that 10 % of 50 devices are 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A known device that was not revoked."""

    device: str
    labels: Mapping[str, str] = field(default_factory=dict)  # as it last reported them
    operator_labels: Mapping[str, str] = field(default_factory=dict)  # which override those


def rank(name: str, device: str) -> bytes:
    """Return a device's place in the order in which a release's deployments choose devices."""
    return hashlib.sha256(f"{name}\0{device}".encode()).digest()


def matching(labels: Mapping[str, str], candidates: Collection[Candidate], *, trusted: bool) -> list[str]:
    """Return the devices that have these labels; `trusted`: those that devices report do not count."""
    return [
        candidate.device
        for candidate in candidates
        if not lacking({**({} if trusted else candidate.labels), **candidate.operator_labels}, labels)
    ]


def require_any(devices: int, labels: Mapping[str, str], *, trusted: bool) -> None:
    """Raise InvalidInput for a selection of no device."""
    if not devices:
        which = f" has the {'trusted ' if trusted else ''}label {write_labels(labels)}" if labels else " is known"
        raise InvalidInput(
            f"the selection is empty: no device{which}; "
            "correct it, or give --allow-empty (allow_empty) to wait for such devices",
            field="selection",
            value=write_labels(labels),
        )


def choose(deployment: Deployment, devices: Collection[str], chosen: Collection[str]) -> list[str]:
    """Return the devices to choose in addition: of `devices`, which match, until the percentage is reached."""
    wanted = math.ceil(len(devices) * deployment.percent / 100 - ROUNDING)
    others = sorted(set(devices).difference(chosen), key=lambda device: rank(deployment.name, device))
    missing = wanted - (len(devices) - len(others))
    return others[: max(missing, 0)]


def choosing(deployments: Collection[Deployment]) -> list[Deployment]:
    """Return the deployments of a release that still choose devices, newest first.

    The newest one to all devices ends the search: earlier ones reach no further device.
    """
    found = []
    for deployment in sorted(deployments, key=lambda each: each.number, reverse=True):
        if deployment.status == "active":
            found.append(deployment)
            if deployment.percent == 100 and not deployment.labels:
                break
    return found
