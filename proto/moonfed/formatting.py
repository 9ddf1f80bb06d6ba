"""Formatting that all programs share: numbers with their nouns, and times."""

from __future__ import annotations

from datetime import datetime, timezone

LAST = 253_402_300_799  # seconds since the epoch: the end of the year 9999, datetime's last


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: `1 round`, `1,000 devices`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def iso_time(seconds: float) -> str | None:
    """Return seconds since the epoch as ISO 8601 in UTC, as JSON output has it; None for 0, which means never."""
    return f"{datetime.fromtimestamp(min(seconds, LAST), timezone.utc):%Y-%m-%dT%H:%M:%SZ}" if seconds else None
