"""The report of `moonfed-client doctor`, one line per check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from moonfed.edge_client.doctor.checks import Check

MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED ", "skipped": "-      "}


def line(check: Check) -> str:
    """Return a check as a line of the report."""
    return f"{check.name:<12} {MARKS[check.status]}  {check.detail}"


def healthy(found: Sequence[Check]) -> bool:
    """Return whether the device can participate: no check failed."""
    return all(check.status != "failed" for check in found)


def document(found: Sequence[Check]) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {"healthy": healthy(found), "checks": [asdict(check) for check in found]}
