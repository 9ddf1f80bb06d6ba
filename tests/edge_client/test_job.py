"""A job on its way to whoever trains it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from moonfed.edge_client.job import Job
from moonfed.encodings import parse_encodings
from moonfed.fleet.assignment import AttemptId
from moonfed.plan.training_spec import TrainingSpec

JOB = Job(
    id=AttemptId(run="digits", round=4, attempt=2),
    training=TrainingSpec(epochs=3, batch_size=8, hyperparameters={"learning_rate": 0.1}),
    seed=7,
    digest="0" * 64,
    manifest_file="manifest.json",
    plan_file="plan.pt",
    files={"model": "model.safetensors"},
)


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        replace(JOB, counted=AttemptId(run="digits", round=3, attempt=1), kept={"device_variate": "variate"}),
        replace(JOB, max_steps=5, max_seconds=1.5, began=12.25, previous_models=("one", "two")),
        replace(JOB, encodings=parse_encodings("bfloat16", "int8+zstd")),
    ],
    ids=["plain", "counted", "limited", "encoded"],
)
def test_a_job_survives_its_way_as_json(job: Job) -> None:
    assert Job.from_document(json.loads(json.dumps(job.to_document()))) == job


def test_the_counted_round_orders_before_every_other_if_there_is_none() -> None:
    assert JOB.counted_key == (0, 0)
    assert replace(JOB, counted=AttemptId(run="digits", round=3, attempt=6)).counted_key == (3, 6)


def test_an_unknown_field_is_an_error_instead_of_lost() -> None:
    with pytest.raises(TypeError, match="unknown"):
        Job.from_document(JOB.to_document() | {"unknown": 1})
    with pytest.raises(KeyError, match="id"):
        Job.from_document({name: value for name, value in JOB.to_document().items() if name != "id"})
