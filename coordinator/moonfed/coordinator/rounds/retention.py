"""Retention: which global models of a run are kept once newer ones exist."""

from __future__ import annotations

from dataclasses import dataclass, replace

from moonfed.control.kinds import MAX_NUMBER
from moonfed.control.run_settings import RunSettings, require_setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Keep the `last` newest models, and that of each `every`-th round (0: no others). Model 0 is always kept."""

    last: int
    every: int

    def __post_init__(self) -> None:
        require_setting("keep_last", self.last)
        require_setting("keep_every", self.every)

    @classmethod
    def of(cls, settings: RunSettings) -> Retention:
        """Return what a run's settings keep."""
        return cls(last=settings.keep_last, every=settings.keep_every)

    def at_least(self, models: int) -> Retention:
        """Return the same retention, keeping at least the last `models` models."""
        return replace(self, last=max(self.last, models))

    def keeps(self, round_: int, newest: int) -> bool:
        """Return True if the model of a round is kept when that of round `newest` is the newest."""
        return round_ > newest - self.last or round_ == 0 or (self.every > 0 and round_ % self.every == 0)

    def __str__(self) -> str:
        others = f" and every {self.every}th" if self.every else ""
        return f"the last {self.last}{others}"


KEEP_ALL = Retention(last=MAX_NUMBER, every=1)
