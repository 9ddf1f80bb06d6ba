"""Evaluations on the network, and the counts that a device may report."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.errors import InvalidInput
from moonfed.fleet.evaluation import MIN_HOLDOUT, EvaluationTask, HoldoutCounts
from moonfed.fleet.messages import read_counts, read_evaluation, write_counts, write_evaluation
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


def test_tasks_and_counts_survive_the_network() -> None:
    assert read_evaluation(write_evaluation(TASK)) == TASK
    for counts in (HoldoutCounts(samples=20, correct=0), HoldoutCounts(samples=50, correct=50, local_correct=0)):
        assert read_counts(write_counts(counts)) == counts


def test_only_numbers_of_samples_leave_a_device() -> None:
    """A new field would be a decision to be documented: see docs/security.md."""
    assert sorted(fleet_pb2.HoldoutCounts.DESCRIPTOR.fields_by_name) == ["correct", "local_correct", "samples"]
    kinds = {field.type for field in fleet_pb2.HoldoutCounts.DESCRIPTOR.fields}
    assert kinds == {fleet_pb2.HoldoutCounts.DESCRIPTOR.fields[0].TYPE_UINT64}


@pytest.mark.parametrize(
    ("samples", "correct", "local", "named"),
    [
        (MIN_HOLDOUT - 1, 0, None, ("samples", ANY)),
        (2**63, 0, None, ("samples", ANY)),
        (20, 21, None, ("correct", 21)),
        (20, -1, None, ("correct", -1)),
        (20, 3, 21, ("local_correct", 21)),
    ],
)
def test_wrong_counts_are_named(samples: int, correct: int, local: int | None, named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        HoldoutCounts(samples=samples, correct=correct, local_correct=local)
