"""The gate that decides whether to keep a variant: a pure function of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from moonfed.errors import InvalidInput
from moonfed.export.scoring import Score
from moonfed.validate import require_at_least

MAX_DROP = 0.5  # see `Score.drop_from`
SMALLER = 0.99  # of the bytes: shorter names and metadata alone do not count
FASTER = 0.95  # of the time: beyond the noise of medians on one machine
SLOWER = 1.05  # of the time: at most, unless size alone matters
Keep = Literal["both", "smaller"]  # what a variant must be: smaller and at most 5 % slower, or smaller
KEEPS: tuple[Keep, ...] = get_args(Keep)
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
    keep: Keep = KEEPS[0],
) -> Verdict:
    """Keep a variant that is smaller than its parent and at most `max_drop` worse than float32 (`Score.drop_from`).

    The parent is the model that the variant was made from. If `keep` is "smaller", its speed does not
    matter; else it must be at most 5 % slower in every pass.
    """
    if inaccurate := _inaccurate(variant, float32, max_drop):
        return inaccurate
    size, times = variant.bytes / parent.bytes, _ratios(variant, parent)
    comparison = "; ".join(_compare(size, times)) or "no difference in size or speed"
    if size > SMALLER:
        return Verdict(kept=False, reason=f"not smaller than {parent_name}: {comparison}")
    slow = any(ratio > SLOWER for name, ratio in times.items() if name != LOADING)
    if slow and keep != "smaller":
        return Verdict(kept=False, reason=f"slower than {parent_name}; `--keep smaller` would keep it: {comparison}")
    return Verdict(kept=True, reason=comparison)


def judge_optimised(
    copy: Measurements, parent: Measurements, float32: Measurements, *, parent_name: str, max_drop: float
) -> Verdict:
    """Keep an optimised copy that is smaller or in any way faster than its parent, and as accurate as `judge` asks."""
    if inaccurate := _inaccurate(copy, float32, max_drop):
        return inaccurate
    size, times = copy.bytes / parent.bytes, _ratios(copy, parent)
    comparison = "; ".join(_compare(size, times)) or "no difference in size or speed"
    gains = size <= SMALLER or any(ratio <= FASTER for ratio in times.values())
    reason = comparison if gains else f"neither smaller nor faster than {parent_name}: {comparison}"
    return Verdict(kept=gains, reason=reason)


def read_keep(text: str) -> Keep:
    """Return the preference of that name; raise InvalidInput for another one."""
    for keep in KEEPS:
        if keep == text:
            return keep
    raise InvalidInput(field="keep", value=text, allowed=" or ".join(map(repr, KEEPS)))


def _inaccurate(variant: Measurements, float32: Measurements, max_drop: float) -> Verdict | None:
    drop, metric = variant.score.drop_from(float32.score), float32.score.metric
    if drop <= max_drop:
        return None
    change = f"{'falls' if metric.maximise else 'rises'} by {drop:.2f} {'points' if metric.share else 'percent'}"
    return Verdict(kept=False, reason=f"{metric.name} {change}; at most {max_drop:g} are allowed")


def _ratios(variant: Measurements, parent: Measurements) -> dict[str, float]:
    return {name: variant.milliseconds[name] / parent.milliseconds[name] for name in parent.milliseconds}


def require_max_drop(value: float) -> None:
    """Raise InvalidInput unless it is a number of points, or percent."""
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
