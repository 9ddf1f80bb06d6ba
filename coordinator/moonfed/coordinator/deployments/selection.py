"""The devices that a deployment chooses. A chosen device stays chosen, and widening only adds devices."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from moonfed.coordinator.deployments.state import Deployment
from moonfed.labels import lacking

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


def matching(deployment: Deployment, candidates: Collection[Candidate]) -> list[str]:
    """Return the devices that have the deployment's labels."""
    return [candidate.device for candidate in candidates if not _lacking(deployment, candidate)]


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


def _lacking(deployment: Deployment, candidate: Candidate) -> Mapping[str, str]:
    own = {} if deployment.trusted_labels else candidate.labels
    return lacking({**own, **candidate.operator_labels}, deployment.labels)
