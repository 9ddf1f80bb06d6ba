"""The gate: whether a variant is worth keeping. Pure: figures in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.export.scoring import Score
from moonfed.validate import require_at_least

MAX_DROP = 0.5  # points of top-1
SMALLER = 0.99  # of the bytes: what only names and notes make up is no gain
FASTER = 0.95  # of the time: below what medians of one machine scatter by
LOADING = "load"  # in `milliseconds`; the others are passes, by what they are called


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of one variant."""

    bytes: int
    score: Score
    milliseconds: Mapping[str, float]  # medians: of a pass by batch, and of loading


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a variant is kept, and why."""

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
    """Keeps a variant whose top-1 is not more than `max_drop` points below float32's if it is smaller or faster.

    Smaller or faster than its parent, the model it was made from. `by_loading`: loading faster counts too, which is
    what optimised copies are for.
    """
    drop = accuracy_drop(variant.score, float32.score)
    if not drop <= max_drop:
        return Verdict(kept=False, reason=f"top-1 falls by {drop:.2f} points; at most {max_drop:g} are allowed")
    size = variant.bytes / parent.bytes
    times = {name: variant.milliseconds[name] / parent.milliseconds[name] for name in parent.milliseconds}
    counted = [ratio for name, ratio in times.items() if by_loading or name != LOADING]
    gains = size <= SMALLER or any(ratio <= FASTER for ratio in counted)
    found = "; ".join(_compared(size, times)) or "no difference in size or speed"
    return Verdict(kept=gains, reason=found if gains else f"neither smaller nor faster than {parent_name}: {found}")


def accuracy_drop(score: Score, reference: Score) -> float:
    """By how many points top-1 is below the reference's; negative if it is above."""
    return round(100 * (reference.accuracy - score.accuracy), 9)  # else one sample of 200 were a little over 0.5


def require_max_drop(value: float) -> None:
    """Raises InvalidInput unless it is a number of points."""
    require_at_least("max-drop", value, 0)


def _compared(size: float, times: Mapping[str, float]) -> list[str]:
    found = []
    if not SMALLER < size < 1 / SMALLER:
        found.append(f"{_times(size)} {'smaller' if size < 1 else 'larger'}")
    for name, ratio in times.items():
        if not FASTER < ratio < 1 / FASTER:
            word = "faster" if ratio < 1 else "slower"
            found.append(f"loads {_times(ratio)} {word}" if name == LOADING else f"{_times(ratio)} {word} at {name}")
    return found


def _times(ratio: float) -> str:
    return f"{max(ratio, 1 / ratio):.2f} times"
