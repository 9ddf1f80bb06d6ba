"""The gate that decides whether to keep a variant: a pure function of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.export.scoring import Score
from moonfed.validate import require_at_least

MAX_DROP = 0.5  # points of top-1
SMALLER = 0.99  # of the bytes: shorter names and metadata alone do not count
FASTER = 0.95  # of the time: beyond the noise of medians on one machine
LOADING = "load"  # key in `milliseconds`; the other keys are passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The measurements of one variant."""

    bytes: int
    score: Score
    milliseconds: Mapping[str, float]  # medians: per pass by batch size, and of loading


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision whether to keep a variant, and its reason."""

    kept: bool
    reason: str


def judge(
    variant: Measurements,
    parent: Measurements,
    float32: Measurements,
    *,
    parent_name: str,
    max_drop: float,
    by_loading: bool = False,
) -> Verdict:
    """Keep a variant that is smaller or faster than its parent and at most `max_drop` points of top-1 below float32.

    The parent is the model that the variant was made from. `by_loading`: faster loading counts too, which is the
    purpose of optimised copies.
    """
    drop = accuracy_drop(variant.score, float32.score)
    if not drop <= max_drop:
        return Verdict(kept=False, reason=f"top-1 falls by {drop:.2f} points; at most {max_drop:g} are allowed")
    size = variant.bytes / parent.bytes
    times = {name: variant.milliseconds[name] / parent.milliseconds[name] for name in parent.milliseconds}
    counted = [ratio for name, ratio in times.items() if by_loading or name != LOADING]
    gains = size <= SMALLER or any(ratio <= FASTER for ratio in counted)
    comparison = "; ".join(_compare(size, times)) or "no difference in size or speed"
    reason = comparison if gains else f"neither smaller nor faster than {parent_name}: {comparison}"
    return Verdict(kept=gains, reason=reason)


def accuracy_drop(score: Score, reference: Score) -> float:
    """Return the points of top-1 below the reference's; negative if it is above."""
    return round(100 * (reference.accuracy - score.accuracy), 9)  # otherwise one sample of 200 would exceed 0.5


def require_max_drop(value: float) -> None:
    """Raise InvalidInput unless it is a number of points."""
    require_at_least("max-drop", value, 0)


def _compare(size: float, times: Mapping[str, float]) -> list[str]:
    differences = []
    if not SMALLER < size < 1 / SMALLER:
        differences.append(f"{_times(size)} {'smaller' if size < 1 else 'larger'}")
    for name, ratio in times.items():
        if not FASTER < ratio < 1 / FASTER:
            word = "faster" if ratio < 1 else "slower"
            differences.append(
                f"loads {_times(ratio)} {word}" if name == LOADING else f"{_times(ratio)} {word} at {name}"
            )
    return differences


def _times(ratio: float) -> str:
    return f"{max(ratio, 1 / ratio):.2f} times"
