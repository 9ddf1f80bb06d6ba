"""The comparison of a release with the current version on this device's holdout, and whether it is too much worse.

A holdout is small, so that of two equally good models one is often ahead by chance. Only the samples tell them apart on
which their errors differ: if both were equally good, each would be as likely to have the smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, lgamma, log

from moonfed.bundle.target import Kind
from moonfed.tasks.figure import FIGURES, SHARES, drop, figure

SIGNIFICANCE = 0.05  # of the one-sided test: how often a device may decline an equally good version


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Errors on a holdout, and numbers of its samples."""

    kind: Kind  # of the target
    samples: int
    error: float  # of the release, the mean over the samples, see `moonfed.tasks.sample_errors`
    current_error: float | None = None  # of the current version; None: not compared
    lost: int = 0  # samples on which the current version's error is smaller
    gained: int = 0  # on which the release's is

    @property
    def score(self) -> float:
        """The release's result as people know it: see `figure`."""
        return figure(self.kind, self.error)

    @property
    def current_score(self) -> float | None:
        """The current version's."""
        return None if self.current_error is None else figure(self.kind, self.current_error)

    @property
    def drop(self) -> float:
        """The drop from the current score: points of what is right, or for other kinds percent."""
        if self.current_score is None:
            return 0.0
        share = self.kind in SHARES
        return drop(self.score, self.current_score, maximise=share, share=share)

    @property
    def p_value(self) -> float:
        """Probability that as many are lost by chance: the exact sign test, one-sided; for classes, McNemar's."""
        differing = self.lost + self.gained
        ways = (
            exp(lgamma(differing + 1) - lgamma(lost + 1) - lgamma(differing - lost + 1) - differing * log(2))
            for lost in range(self.lost, differing + 1)
        )
        return min(1.0, fsum(ways))

    def __str__(self) -> str:
        found = f"{FIGURES[self.kind]} {self.score:.4g} on {self.samples} samples held out here"
        if self.current_score is None:
            return found
        return (
            f"{found}, the current version {self.current_score:.4g}: {self.lost} lost, {self.gained} gained, "
            f"p = {self.p_value:.2g}"
        )


def compare(kind: Kind, errors: Sequence[float], current_errors: Sequence[float] | None) -> Comparison:
    """Compare two models by their errors on the same samples, at least one."""
    samples = len(errors)
    error = fsum(errors) / samples
    if current_errors is None:
        return Comparison(kind=kind, samples=samples, error=error)
    pairs = list(zip(errors, current_errors, strict=True))
    return Comparison(
        kind=kind,
        samples=samples,
        error=error,
        current_error=fsum(current_errors) / samples,
        lost=sum(new > old for new, old in pairs),
        gained=sum(new < old for new, old in pairs),
    )


def is_worse(found: Comparison, max_drop: float) -> bool:
    """Return whether a release is behind by more than `max_drop`, and on significantly many samples."""
    return found.lost > found.gained and found.drop > max_drop and found.p_value < SIGNIFICANCE
