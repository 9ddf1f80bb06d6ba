"""The state machine of one evaluation on devices, and the summary of its scores; no clock, no I/O.

It depends on its state alone, which replicas share in the database, so any of them may take any step, more than once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from moonfed.bundle.manifest import Metric
from moonfed.control.evaluations import DeviceScore

NOBODY: frozenset[str] = frozenset()
DECILE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationState:
    """The devices of an open evaluation."""

    pending: frozenset[str] = NOBODY  # expected to answer
    answered: frozenset[str] = NOBODY
    gone: frozenset[str] = NOBODY  # of the pending ones: revoked or removed


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSteps:
    """The steps to take, in this order."""

    expect: frozenset[str] = NOBODY  # devices that become pending
    ask: frozenset[str] = NOBODY  # pending devices that are online
    close: bool = False


def next_steps(state: EvaluationState, eligible: Collection[str], *, overdue: bool) -> EvaluationSteps:
    """Return the steps to take; `eligible`: devices that are online, at any replica, and may be asked.

    An evaluation ends when all devices that it expects have answered, or at its deadline. Devices that took part in the
    run are expected even while they are offline, since many are online for a part of the day only.
    """
    if overdue:
        return EvaluationSteps(close=True)
    ask = frozenset(eligible) - state.answered
    expect = ask - state.pending
    waiting = (state.pending - state.gone) | ask
    known = state.pending | state.answered | expect
    return EvaluationSteps(expect=expect, ask=ask, close=bool(known) and not waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSummary:
    """The distribution of a model's scores over devices, each of which counts the same; None without devices."""

    median: float | None = None
    worst_decile: float | None = None  # mean over the worst tenth, rounded up (Li et al. 2020, q-FFL)
    compared: int = 0  # devices with a model of their own
    worse: int = 0  # of those, devices on which the global model is worse than their own


def summarise(scores: Sequence[DeviceScore], metric: Metric) -> EvaluationSummary:
    """Summarise the scores, which are values of the metric."""
    if not scores:
        return EvaluationSummary()
    values = sorted((found.score for found in scores), reverse=not metric.maximise)  # the worst first
    own = [(found.score, found.local_score) for found in scores if found.local_score is not None]
    return EvaluationSummary(
        median=median(values),
        worst_decile=fmean(values[: -(-len(values) // DECILE)]),
        compared=len(own),
        worse=sum(score < local if metric.maximise else score > local for score, local in own),
    )
