"""A device's daily training window, such as 22:00-06:00, in its local time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo

from moonfed.errors import InvalidInput

_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
DAYS_AHEAD = 2  # one window opens among them even if a clock change skips the first


@dataclass(frozen=True, slots=True)
class TrainingWindow:
    """A window that opens daily at one time and closes at another, on the next day if that is earlier.

    All moments are aware datetimes. On a day that skips an hour, a time of day that does not exist is interpreted with
    the offset before the change; on a day that repeats an hour, the first occurrence counts (PEP 495).
    """

    opens: time
    closes: time
    zone: tzinfo | None = None  # None: the system's

    @classmethod
    def parse(cls, text: str, zone: tzinfo | None = None) -> TrainingWindow:
        """Parse HH:MM-HH:MM; raise InvalidInput for anything else."""
        found = _WINDOW.fullmatch(text)
        hours = [int(part) for part in found.groups()] if found else [0, 0, 0, 0]
        opens, closes = time(hours[0], hours[1]), time(hours[2], hours[3])
        if opens == closes:
            raise InvalidInput(
                field="between", value=text, allowed="two different times, HH:MM-HH:MM, from 00:00 to 23:59"
            )
        return cls(opens, closes, zone)

    def __str__(self) -> str:
        return f"{self.opens:%H:%M}-{self.closes:%H:%M}"

    def contains(self, moment: datetime) -> bool:
        """Return whether the window is open."""
        return self.seconds_until_close(moment) > 0

    def seconds_until_close(self, moment: datetime) -> float:
        """Return how long the window stays open; 0 if it is closed."""
        now = moment.astimezone(timezone.utc)
        left = [(end - now).total_seconds() for start, end in self._around(now) if start <= now < end]
        return max(left, default=0.0)

    def seconds_until_open(self, moment: datetime) -> float:
        """Return how long the window stays closed; 0 if it is open."""
        now = moment.astimezone(timezone.utc)
        return min(max((start - now).total_seconds(), 0.0) for start, end in self._around(now) if end > now)

    def _around(self, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Return the windows around a moment in UTC, the only zone in which arithmetic on aware times is exact."""
        today = now.astimezone(self.zone).date()
        for days in range(-1, DAYS_AHEAD + 1):
            day = today + timedelta(days=days)
            start = self._at(day, self.opens)
            end = self._at(day if self.opens < self.closes else day + timedelta(days=1), self.closes)
            if start < end:
                yield start, end

    def _at(self, day: date, clock: time) -> datetime:
        """Interpret a naive datetime in the system's zone."""
        return datetime.combine(day, clock, self.zone).astimezone(timezone.utc)


def now() -> datetime:
    """Return the current time, timezone-aware."""
    return datetime.now(timezone.utc)
