"""Evaluations on the network, and the scores that a device may report."""

from __future__ import annotations

from unittest.mock import ANY

import pytest
from google.protobuf.descriptor import FieldDescriptor

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import ACCURACY
from moonfed.errors import InvalidInput
from moonfed.fleet.evaluation import MIN_HOLDOUT, EvaluationTask, HoldoutScores
from moonfed.fleet.messages import read_evaluation, read_scores, write_evaluation, write_scores
from moonfed.v1 import fleet_pb2
from tests.support.refusals import refused

TASK = EvaluationTask(
    run="r",
    round=0,
    number=2,
    manifest=ref_of_bytes(b"manifest"),
    signature=ref_of_bytes(b"signature"),
    model=ref_of_bytes(b"model"),
    seed=2**64 - 1,
)


def test_tasks_and_scores_survive_the_network() -> None:
    assert read_evaluation(write_evaluation(TASK)) == TASK
    for scores in (HoldoutScores(samples=20, score=0.1), HoldoutScores(samples=50, score=3e4, local_score=0.0)):
        assert read_scores(write_scores(scores)) == scores


def test_only_three_numbers_leave_a_device() -> None:
    """A new field would be a decision to be documented: see docs/security.md."""
    fields = fleet_pb2.HoldoutScores.DESCRIPTOR.fields_by_name
    assert {name: field.type for name, field in fields.items()} == {
        "samples": FieldDescriptor.TYPE_UINT64,
        "score": FieldDescriptor.TYPE_DOUBLE,
        "local_score": FieldDescriptor.TYPE_DOUBLE,
    }


@pytest.mark.parametrize(
    ("samples", "score", "local", "named"),
    [
        (MIN_HOLDOUT - 1, 0.0, None, ("samples", ANY)),
        (2**63, 0.0, None, ("samples", ANY)),
        (20, float("nan"), None, ("score", ANY)),
        (20, 0.5, float("inf"), ("local_score", ANY)),
        (20, 1.01, None, ("score", 1.01)),
        (20, -0.1, None, ("score", -0.1)),
        (20, 0.3, 2.0, ("local_score", 2.0)),
    ],
)
def test_wrong_scores_are_named(samples: int, score: float, local: float | None, named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        HoldoutScores(samples=samples, score=score, local_score=local).require_fits(ACCURACY)
