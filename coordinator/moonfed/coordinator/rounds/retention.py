"""Retention: which global models of a run are kept once newer ones exist."""

from __future__ import annotations

from dataclasses import dataclass, replace

from moonfed.validate import require_whole

MAX_KEPT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Keep the `last` newest models, and that of each `every`-th round (0: no others). Model 0 is always kept."""

    last: int = 20
    every: int = 100

    def __post_init__(self) -> None:
        require_whole("keep_last", self.last, 1, MAX_KEPT)
        require_whole("keep_every", self.every, 0, MAX_KEPT)

    def at_least(self, models: int) -> Retention:
        """Return the same retention, keeping at least the last `models` models."""
        return replace(self, last=max(self.last, models))

    def keeps(self, round_: int, newest: int) -> bool:
        """Return True if the model of a round is kept when that of round `newest` is the newest."""
        return round_ > newest - self.last or round_ == 0 or (self.every > 0 and round_ % self.every == 0)

    def __str__(self) -> str:
        others = f" and every {self.every}th" if self.every else ""
        return f"the last {self.last}{others}"


KEEP_ALL = Retention(last=MAX_KEPT, every=1)
