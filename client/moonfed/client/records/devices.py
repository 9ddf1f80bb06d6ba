"""Devices and the join tokens with which they enrol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

TokenStatus = Literal["valid", "used up", "expired", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResult:
    """A device's part in its most recent round that has ended."""

    run: str
    round: int
    attempt: int
    outcome: str  # counted, incident, abandoned, rejected, declined, lost, late or missing
    reason: str
    time: datetime  # when the attempt ended
    seconds: float | None  # from its assignment to the first byte of its update; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActivity:
    """An assignment that a device works on."""

    run: str
    round: int
    attempt: int
    fraction: float  # of the local training, as last reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One certificate of a device."""

    serial: str  # hexadecimal
    expires: datetime
    rejected: datetime | None  # None: accepted until it expires
    reason: str  # revoked, removed, replaced or renamed; empty: accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An enrolled device."""

    device: str
    online: bool
    enrolled: datetime | None  # None without TLS
    last_seen: datetime | None
    certificate_expires: datetime | None
    revoked: datetime | None  # None: it is not revoked
    release: str  # of moonfed on the device
    rounds: int  # committed rounds that counted its update
    labels: Mapping[str, str]  # its own if it is online, overridden by the operators'
    operator_labels: Mapping[str, str]
    platform: Mapping[str, str]
    last_result: DeviceResult | None
    activity: tuple[DeviceActivity, ...]  # the current assignment first
    ineligible: str  # reason, if `devices` was asked for a run's ineligible ones
    inference_only: bool  # it has no data, and takes part in no run
    shared_by: tuple[str, ...]  # addresses of the machines that use its identity in turns, if several do
    certificates: tuple[Certificate, ...]  # the newest last; empty in lists


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A join token with its secret, which a device needs to enrol."""

    token: str
    id: str
    expires: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A join token without its secret."""

    id: str
    status: TokenStatus
    created: datetime
    operator: str  # who created it
    expires: datetime
    uses: int
    uses_left: int
    device: str  # the only one that may enrol with it; empty: any new one
    revoked: datetime | None
