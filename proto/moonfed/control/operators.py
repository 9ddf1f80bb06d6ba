"""Operators and the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from moonfed.transport.identity import Role

AuditOutcome = Literal["pending", "done", "failed", "denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A certificate of an operator."""

    operator: str
    role: Role
    serial: str
    created: datetime
    created_by: str = ""  # the operator; empty: the coordinator itself
    expires: datetime
    revoked: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A change that somebody made or attempted, or a denied call.

    `role`: of an operator; "device"; "coordinator" for itself; or empty for a caller without a certificate. A change
    stays pending if its coordinator was killed before the call ended.
    """

    number: int = 0  # in the order of recording
    time: datetime
    name: str
    role: str
    serial: str  # of the caller's certificate
    address: str
    call: str  # such as StopRun
    details: str  # in the infinitive, such as "stop run 'digits'"
    outcome: AuditOutcome
    reason: str = ""  # of a failed or denied call
    count: int = 1  # of the similar calls that the record stands for
