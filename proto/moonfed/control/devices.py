"""Devices and the join tokens with which they enrol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from moonfed.labels import INFERENCE_ONLY

# counted    its update was reduced
# incident   robust aggregation changed its update, excluded it, or reported it as far from the others
# abandoned  its update was accepted, but the attempt was abandoned
# rejected   its update failed the checks
# declined   it declined the assignment
# lost       it sent no heartbeat within the run's timeout, left, or was revoked
# late       it offered its update after the round had closed; until then it is missing or lost
# missing    none of these
DeviceOutcome = Literal["counted", "incident", "abandoned", "rejected", "declined", "lost", "late", "missing"]
TokenStatus = Literal["valid", "used up", "expired", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResult:
    """A device's part in an attempt at a round that has ended."""

    run: str
    round: int
    attempt: int
    outcome: DeviceOutcome
    reason: str = ""  # of any outcome but counted, if known
    time: datetime  # when the attempt ended
    seconds: float | None = None  # from its assignment to the first byte of its update; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActivity:
    """An assignment that a device works on."""

    run: str
    round: int
    attempt: int
    fraction: float = 0.0  # of the local training, as last reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One certificate of a device."""

    serial: str  # hexadecimal
    expires: datetime
    rejected: datetime | None = None  # None: accepted until it expires
    reason: str = ""  # revoked, removed, replaced or renamed; empty: accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that has enrolled, or connected without TLS."""

    device: str
    online: bool = False
    enrolled: datetime | None = None
    last_seen: datetime | None = None
    certificate_expires: datetime | None = None  # None without TLS
    revoked: datetime | None = None  # None: it is not revoked
    release: str = ""  # of moonfed on the device, when it last connected
    rounds: int = 0  # committed rounds that counted its update
    labels: Mapping[str, str] = field(default_factory=dict)  # its own if it is online, overridden by the operators'
    operator_labels: Mapping[str, str] = field(default_factory=dict)
    platform: Mapping[str, str] = field(default_factory=dict)
    last_result: DeviceResult | None = None  # None: it was in no round that has ended
    activity: tuple[DeviceActivity, ...] = ()  # the current assignment first
    inference_only: bool = field(init=False)  # it has no data, so it takes part in no run
    ineligible: str = ""  # why it cannot take part in the run that was asked about
    shared_by: tuple[str, ...] = ()  # addresses of the machines that use its identity in turns, if several do
    certificates: tuple[Certificate, ...] = ()  # the newest last; empty in lists

    def __post_init__(self) -> None:
        object.__setattr__(self, "inference_only", INFERENCE_ONLY in self.platform)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A join token with its secret, which a device needs to enrol."""

    token: str
    id: str
    expires: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A join token without its secret, whose hash begins with the `id`."""

    id: str
    status: TokenStatus
    created: datetime
    operator: str = ""  # who created it
    expires: datetime
    uses: int
    uses_left: int
    device: str = ""  # the only one that may enrol with it; empty: any new one
    revoked: datetime | None = None
