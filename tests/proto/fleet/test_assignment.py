"""Assignments: checks by field, and a digest of everything that the update depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.encodings import Encodings, parse_encoding
from moonfed.errors import InvalidInput
from moonfed.fleet.assignment import Assignment, AttemptId
from moonfed.plan.training_spec import TrainingSpec

FIRST = AttemptId(run="digits", round=3, attempt=1)
TRAINING = TrainingSpec(epochs=2, batch_size=8, hyperparameters={"learning_rate": 0.1, "mu": 1.0})
WORK = Assignment(
    id=FIRST,
    manifest=ref_of_bytes(b"manifest"),
    blobs={"model": ref_of_bytes(b"model"), "variate": ref_of_bytes(b"variate")},
    training=TRAINING,
    seed=7,
    counted=replace(FIRST, round=2),
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": replace(FIRST, round=0)}, "round is 0"),
        ({"id": replace(FIRST, attempt=0)}, "attempt is 0"),
        ({"blobs": {"variate": ref_of_bytes(b"v")}}, r"blobs \['variate'\]; 'model' must be among them"),
        ({"counted": FIRST}, "counted_round is 3"),
    ],
)
def test_an_invalid_assignment_is_rejected_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(WORK, **fields)


def test_an_attempt_is_named_only_if_it_is_not_the_first() -> None:
    assert str(WORK) == "run digits, round 3"
    assert str(replace(WORK, id=replace(FIRST, attempt=2))) == "run digits, round 3, attempt 2"
    assert str(FIRST) == "round 3, attempt 1 of run 'digits'"


def test_the_digest_does_not_depend_on_the_attempt_or_on_any_order() -> None:
    swapped = dict(reversed(list(WORK.blobs.items())))
    numbers = dict(reversed(list(TRAINING.hyperparameters.items())))
    again = replace(
        WORK, id=replace(FIRST, attempt=4), blobs=swapped, training=replace(TRAINING, hyperparameters=numbers)
    )
    assert again.digest() == WORK.digest()


@pytest.mark.parametrize(
    "fields",
    [
        {"manifest": ref_of_bytes(b"another")},
        {"blobs": {**WORK.blobs, "model": ref_of_bytes(b"another")}},
        {"training": replace(TRAINING, epochs=3)},
        {"training": replace(TRAINING, hyperparameters={"learning_rate": 0.2, "mu": 1.0})},
        {"seed": 8},
        {"required_plan": "graph/1"},
        {"counted": None},
        {"encodings": Encodings(up=parse_encoding("up", "int8"))},
    ],
)
def test_the_digest_covers_what_the_update_depends_on(fields: dict[str, Any]) -> None:
    assert replace(WORK, **fields).digest() != WORK.digest()


def test_the_digest_covers_the_devices_own_budgets() -> None:
    digests = {
        WORK.digest(),
        WORK.digest(max_steps=9),
        WORK.digest(max_seconds=9),
        WORK.digest(between="22:00-06:00"),
    }
    assert len(digests) == 4
