"""The state machine of an evaluation on devices, for any order of events, and the summary of its scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.control.evaluations import DeviceScore
from moonfed.coordinator.rounds.evaluation import (
    EvaluationState,
    EvaluationSteps,
    EvaluationSummary,
    next_steps,
    summarise,
)

DEVICES = st.frozensets(st.sampled_from("abcdef"))


def state(pending: str = "", answered: str = "", gone: str = "") -> EvaluationState:
    return EvaluationState(pending=frozenset(pending), answered=frozenset(answered), gone=frozenset(gone))


def steps(expect: str = "", ask: str = "", *, close: bool = False) -> EvaluationSteps:
    return EvaluationSteps(expect=frozenset(expect), ask=frozenset(ask), close=close)


@pytest.mark.parametrize(
    ("before", "eligible", "after"),
    [
        (state(), "", steps()),  # there is nobody yet
        (state(), "a", steps("a", "a")),
        (state("ab"), "a", steps("", "a")),  # b is offline, and expected to return
        (state("b", "a"), "a", steps()),
        (state("", "ab"), "ab", steps(close=True)),
        (state("", "ab"), "abc", steps("c", "c")),  # c comes while the evaluation is open
        (state("b", "a", gone="b"), "a", steps(close=True)),  # b was revoked
        (state("b", gone="b"), "", steps(close=True)),
    ],
)
def test_the_devices_that_are_expected_and_asked(
    before: EvaluationState, eligible: str, after: EvaluationSteps
) -> None:
    assert next_steps(before, eligible, overdue=False) == after


@given(DEVICES, DEVICES, DEVICES, st.booleans())
def test_at_the_deadline_it_ends_and_asks_nobody(
    pending: frozenset[str], answered: frozenset[str], eligible: frozenset[str], gone: bool
) -> None:
    before = EvaluationState(pending=pending - answered, answered=answered, gone=pending if gone else frozenset())
    assert next_steps(before, eligible, overdue=True) == steps(close=True)


@given(st.lists(st.tuples(DEVICES, DEVICES, DEVICES), max_size=12))
def test_no_device_is_asked_after_it_answered_and_none_is_left_out(
    looks: list[tuple[frozenset[str], frozenset[str], frozenset[str]]],
) -> None:
    """Every look sees some devices online; some of those asked answer, and operators remove some pending ones."""
    current = state()
    for online, answering, removed in looks:
        found = next_steps(current, online, overdue=False)
        assert not found.ask & current.answered
        assert found.ask == online - current.answered
        assert found.expect == found.ask - current.pending
        pending = current.pending | found.expect
        if found.close:
            assert pending | current.answered
            assert pending <= current.gone
            assert not found.ask
            return
        assert next_steps(current, online, overdue=False) == found  # at another replica, too
        answered = current.answered | (found.ask & answering)
        pending -= answered
        current = EvaluationState(pending=pending, answered=answered, gone=(current.gone | removed) & pending - online)
    everybody = EvaluationState(answered=current.pending | current.answered)
    assert next_steps(everybody, (), overdue=False).close == bool(everybody.answered)


EIGHTHS = st.integers(0, 8).map(lambda number: number / 8)
SCORES = st.lists(st.tuples(EIGHTHS, st.none() | EIGHTHS), min_size=1, max_size=40)


@given(SCORES, st.booleans())
def test_the_summary_counts_every_device_the_same(scores: list[tuple[float, float | None]], maximise: bool) -> None:
    found = summarise(
        [
            DeviceScore(device=str(number), samples=20, score=score, local_score=local)
            for number, (score, local) in enumerate(scores)
        ],
        Metric(name="quality", maximise=maximise, share=True),
    )
    assert found
    values = np.sort([score for score, _ in scores])
    tenth = -(-len(scores) // 10)
    assert found.median == pytest.approx(np.median(values))
    assert found.worst_decile == pytest.approx((values[:tenth] if maximise else values[-tenth:]).mean())
    gains = np.array([score - local for score, local in scores if local is not None])
    assert (found.compared, found.worse) == (len(gains), ((gains < 0) if maximise else (gains > 0)).sum())


def test_without_scores_there_is_no_summary() -> None:
    assert summarise([], ACCURACY) == EvaluationSummary()
