"""Reduces a closed round: its spooled updates become the next global model, a durable blob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.aggregation import Contribution, weighted_mean
from coordinator.records import Answer, AttemptId
from coordinator.state_directory import StateDirectory
from coordinator.updates import MODEL_ROLE
from moonfed.blobs import BlobRef, ref_of_file
from moonfed.errors import Corrupt
from moonfed.files import sync_file
from moonfed.tensors import TensorSpec, write_model

HOLDOUT_SAMPLES = "holdout_samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The outcome of a round."""

    model: BlobRef
    metrics: dict[str, float]


def reduce_round(
    state: StateDirectory, attempt: AttemptId, devices: Sequence[str], specs: Sequence[TensorSpec]
) -> Reduction:
    """The weighted mean of these devices' updates, in this order; Corrupt if a spooled update is damaged."""
    answers = {answer.device: answer for answer in state.store.answers(attempt)}
    counted = [answers[device] for device in devices]
    contributions = [_contribution(state, answer) for answer in counted]
    path = state.spool(attempt) / "model"
    write_model(path, specs, weighted_mean(contributions, specs))
    sync_file(path)
    model = ref_of_file(path)
    state.blobs.put_file(path, model)
    return Reduction(model=model, metrics=cohort_metrics(counted))


def cohort_metrics(answers: Sequence[Answer]) -> dict[str, float]:
    """`train_loss`, the devices' mean loss weighted by samples; `holdout_…` ones weighted by `holdout_samples`."""
    found: dict[str, list[tuple[float, float]]] = {}
    for answer in answers:
        if "loss" in answer.metrics:
            found.setdefault("train_loss", []).append((answer.samples, answer.metrics["loss"]))
        held_out = answer.metrics.get(HOLDOUT_SAMPLES, 0)
        for name, value in answer.metrics.items():
            if name.startswith("holdout_") and name != HOLDOUT_SAMPLES:
                found.setdefault(name, []).append((held_out, value))
    weights = {name: sum(weight for weight, _ in pairs) for name, pairs in found.items()}
    return {
        name: sum(weight * value for weight, value in pairs) / weights[name]
        for name, pairs in found.items()
        if weights[name] > 0
    }


def _contribution(state: StateDirectory, answer: Answer) -> Contribution:
    path = state.update_file(answer.id, answer.device)
    if not path.is_file() or ref_of_file(path) != answer.blobs[MODEL_ROLE]:
        raise Corrupt(f"the spooled update of {answer.device!r} was damaged on the coordinator's disk: {path}")
    return Contribution(path=path, samples=answer.samples)
