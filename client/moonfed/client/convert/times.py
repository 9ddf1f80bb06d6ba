"""Conversion of times."""

from __future__ import annotations

from datetime import datetime, timezone

from moonfed.formatting import LAST


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(min(seconds, LAST), timezone.utc)


def moment_or_none(seconds: float) -> datetime | None:
    """Return seconds since the epoch as a time in UTC; None for 0, which means never."""
    return moment(seconds) if seconds else None
