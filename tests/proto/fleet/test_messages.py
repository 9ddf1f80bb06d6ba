"""Assignments and ends of runs survive the network; wrong ones are rejected by field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.encodings import Encodings, parse_encodings
from moonfed.errors import InvalidInput
from moonfed.fleet.assignment import Assignment, AttemptId, EligibilityCheck, RunEnded
from moonfed.fleet.messages import (
    read_assignment,
    read_check,
    read_run_ended,
    write_assignment,
    write_check,
    write_run_ended,
)
from moonfed.plan.training_spec import TrainingSpec
from tests.support.refusals import refused

FIRST = AttemptId(run="digits", round=3, attempt=2)
WORK = Assignment(
    id=FIRST,
    manifest=ref_of_bytes(b"manifest"),
    blobs={"model": ref_of_bytes(b"model"), "variate": ref_of_bytes(b"variate")},
    training=TrainingSpec(epochs=2, batch_size=8, views=3, hyperparameters={"learning_rate": 0.1}),
    seed=2**64 - 1,
    counted=AttemptId(run="digits", round=1, attempt=4),
    encodings=parse_encodings("bfloat16", "int8+zstd"),
)


@pytest.mark.parametrize("work", [WORK, replace(WORK, counted=None, encodings=Encodings())])
def test_an_assignment_survives_the_network(work: Assignment) -> None:
    assert read_assignment(write_assignment(work)) == work


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("round", 0, ("round", 0)),
        ("attempt", 0, ("attempt", 0)),
        ("counted_round", 3, ("counted_round", 3)),
        ("uplink_encoding", "int3", ("uplink_encoding", "int3")),
    ],
)
def test_an_invalid_assignment_is_rejected_by_field(field: str, value: int | str, named: tuple[str, object]) -> None:
    message = write_assignment(WORK)
    setattr(message, field, value)
    with refused(InvalidInput, *named):
        read_assignment(message)


def test_a_malformed_digest_is_rejected() -> None:
    message = write_assignment(WORK)
    message.blobs["model"].sha256 = "../../etc/passwd"
    with pytest.raises(InvalidInput, match="64 lower-case hexadecimal"):
        read_assignment(message)


def test_the_end_of_a_run_survives_the_network() -> None:
    assert read_run_ended(write_run_ended(RunEnded(run="digits"))) == RunEnded(run="digits")


@pytest.mark.parametrize("signature", [None, ref_of_bytes(b"signature")])
def test_a_check_survives_the_network(signature: BlobRef | None) -> None:
    check = EligibilityCheck(run="digits", manifest=ref_of_bytes(b"manifest"), signature=signature)
    assert read_check(write_check(check)) == check
