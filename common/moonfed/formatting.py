"""Formatting that all programs share: numbers with their nouns, and times."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal

LARGE = 1e9  # which is written with an exponent
LAST = 253_402_300_799  # seconds since the epoch: the end of the year 9999, datetime's last


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: `1 round`, `1,000 devices`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number_text(value: float) -> str:
    """Return the shortest text from which the same number is read: `2` for 2.0, `33.333333333333336`."""
    return repr(float(value)).removesuffix(".0")


def percent_text(fraction: float) -> str:
    """Return a fraction as the percentage from which `read_percent` reads the same number: `7%` for 0.07."""
    return f"{(100 * Decimal(repr(float(fraction)))).normalize():f}%"


def read_percent(text: str) -> float:
    """Return the fraction that a percentage such as `7%` is; raises ValueError."""
    try:
        return float(Decimal(text.strip().removesuffix("%")) / 100)
    except ArithmeticError as error:
        raise ValueError(f"{text!r} is not a percentage") from error


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as a time in UTC."""
    return datetime.fromtimestamp(min(seconds, LAST), timezone.utc)


def moment_or_none(seconds: float) -> datetime | None:
    """Return seconds since the epoch as a time in UTC; None for 0, which means never."""
    return moment(seconds) if seconds else None


def iso(time: datetime) -> str:
    """Return a time in UTC in ISO 8601, as JSON output has it."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def iso_time(seconds: float) -> str | None:
    """Return seconds since the epoch in ISO 8601 and UTC; None for 0, which means never."""
    return iso(moment(seconds)) if seconds else None


def measured(value: float, unit: str = "") -> str:
    """Format a measured number, such as an error in the unit of its values, with about four digits that matter."""
    size = abs(value)
    places = ".1f" if 1000 <= size < LARGE else ".4f" if 0.001 <= size < LARGE or not size else ".3g"
    return f"{value:{places}} {unit}".rstrip()
