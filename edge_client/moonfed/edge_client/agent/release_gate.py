"""The comparison of a release with the current version on this device's holdout, and whether it is too much worse.

A holdout is small, so that of two equally good models one is often ahead by chance. Only the samples tell them apart
that exactly one of them classifies correctly: if both were equally good, each would be as likely to be lost as gained.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, lgamma, log

SIGNIFICANCE = 0.05  # of the one-sided test: how often a device may decline an equally good version


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Numbers of samples of a holdout."""

    samples: int
    correct: int  # that the release classifies correctly
    current_correct: int | None = None  # that the current version does; None: not compared
    lost: int = 0  # that only the current version does
    gained: int = 0  # that only the release does

    @property
    def score(self) -> float:
        """Accuracy of the release."""
        return self.correct / self.samples

    @property
    def current_score(self) -> float | None:
        """Accuracy of the current version."""
        return None if self.current_correct is None else self.current_correct / self.samples

    @property
    def drop(self) -> float:
        """Points of accuracy by which the release is below the current version."""
        return 100 * (self.lost - self.gained) / self.samples

    @property
    def p_value(self) -> float:
        """Probability that as many are lost by chance: McNemar's exact test, one-sided."""
        differing = self.lost + self.gained
        ways = (
            exp(lgamma(differing + 1) - lgamma(lost + 1) - lgamma(differing - lost + 1) - differing * log(2))
            for lost in range(self.lost, differing + 1)
        )
        return min(1.0, fsum(ways))

    def __str__(self) -> str:
        if self.current_correct is None:
            return f"it classifies {self.correct} of {self.samples} samples held out here correctly"
        return (
            f"it classifies {self.correct} of {self.samples} samples held out here correctly, the current version "
            f"{self.current_correct}: {self.lost} lost, {self.gained} gained, p = {self.p_value:.2g}"
        )


def compare(samples: int, hits: int, current_hits: int | None) -> Comparison:
    """Compare two models by the samples that each classifies correctly: one bit per sample, set if it does."""
    if current_hits is None:
        return Comparison(samples=samples, correct=hits.bit_count())
    return Comparison(
        samples=samples,
        correct=hits.bit_count(),
        current_correct=current_hits.bit_count(),
        lost=(current_hits & ~hits).bit_count(),
        gained=(hits & ~current_hits).bit_count(),
    )


def is_worse(found: Comparison, max_drop: float) -> bool:
    """Return whether a release lost more than `max_drop` points, and significantly many samples."""
    return found.lost > found.gained and found.drop > max_drop and found.p_value < SIGNIFICANCE
