"""The phases of an attempt at a round: a partition of its time, from its opening to its end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

PHASES = ("training", "upload", "waiting", "reduction", "commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Moments of an attempt, in seconds of one clock; None: it has not come."""

    opened: float
    last_upload: float | None = None  # the last accepted update began to arrive
    last_receipt: float | None = None  # the last accepted update was counted
    closed: float | None = None  # no more updates are accepted
    reduced: float | None = None  # the new global model is computed
    ended: float


def phase_seconds(moments: Moments) -> dict[str, float]:
    """Return the attempt's seconds by phase, which add up to its duration.

    `training`: until the last accepted update began to arrive. `upload`: until it was counted. `waiting`: until the
    round closed, for devices that did not deliver. `reduction`: until the new global model was computed. `commit`:
    until it was durable. An attempt without updates waits; one that is abandoned has no commit.
    """
    opened, ended = moments.opened, moments.ended
    uploads = [opened if moment is None else moment for moment in (moments.last_upload, moments.last_receipt)]
    rest = [ended if moment is None else moment for moment in (moments.closed, moments.reduced)]
    in_order = accumulate([opened, *uploads, *rest, ended], max)
    bounded = [min(moment, max(opened, ended)) for moment in in_order]
    return {phase: end - begin for phase, (begin, end) in zip(PHASES, pairwise(bounded), strict=True)}
