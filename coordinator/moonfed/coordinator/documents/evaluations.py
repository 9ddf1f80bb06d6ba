"""Evaluations of global models, on test sets and on devices, as JSON values. Times are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moonfed.control.held_out_score import HeldOutScore
from moonfed.formatting import iso_time
from moonfed.v1 import control_pb2

LOWEST = 5  # devices


def evaluations_document(evaluations: Iterable[control_pb2.Evaluation]) -> dict[str, Any]:
    """Return a run's evaluations."""
    found = list(evaluations)
    return {
        "test_sets": [
            {"round": one.round, **HeldOutScore.from_message(one.test_set).to_json()}
            for one in found
            if one.HasField("test_set")
        ],
        "device_evaluations": [device_evaluation_document(one.devices) for one in found if one.HasField("devices")],
    }


def device_evaluation_document(found: control_pb2.DeviceEvaluation) -> dict[str, Any]:
    """Return an evaluation on devices: its distribution, each device's results, and the devices not in it."""
    return {
        "run": found.run,
        "round": found.round,
        "number": found.number,
        "opened": iso_time(found.opened),
        "deadline": iso_time(found.deadline),
        "closed": iso_time(found.closed),
        "summary": _summary_document(found.summary) if found.HasField("summary") else None,
        "devices": [_score_document(score) for score in found.scores],
        "lowest": [_score_document(score) for score in lowest_scores(found)],
        "skipped": {group.reason: list(group.devices) for group in found.skipped},
        "waiting": list(found.waiting),
    }


def lowest_scores(found: control_pb2.DeviceEvaluation) -> list[control_pb2.DeviceScore]:
    """Return the scores of the devices on which the model is least accurate, the lowest first, at most `LOWEST`."""
    return sorted(found.scores, key=lambda score: (score.correct / score.samples, -score.samples, score.device))[
        :LOWEST
    ]


def _summary_document(summary: control_pb2.DeviceSummary) -> dict[str, Any]:
    return {
        "devices": summary.devices,
        "median": summary.median,
        "worst_decile": summary.worst_decile,
        "compared": summary.compared,
        "worse": summary.worse,
    }


def _score_document(score: control_pb2.DeviceScore) -> dict[str, Any]:
    return {
        "device": score.device,
        "samples": score.samples,
        "correct": score.correct,
        "local_correct": score.local_correct if score.HasField("local_correct") else None,
    }
