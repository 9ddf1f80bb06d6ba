"""Reduces a closed round: its spooled updates become the next global model, a durable blob, and the round's record."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.aggregation import Contribution, weighted_mean
from coordinator.records import Answer, AttemptId
from coordinator.rounds.events import Damaged, Reduce, ReducingFailed
from coordinator.storage.state_directory import StateDirectory
from coordinator.updates import HOLDOUT_SAMPLES, MODEL_ROLE
from moonfed.blobs import BlobRef, ref_of_file
from moonfed.errors import MoonfedError
from moonfed.files import sync_file
from moonfed.tensors import TensorSpec, write_model

_log = logging.getLogger(__name__)


class DamagedUpdates(Exception):
    """Spooled updates are not what was acknowledged; `devices` delivered them."""

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__(f"the spooled updates of {', '.join(devices)} were damaged on the coordinator's disk")
        self.devices = tuple(devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The outcome of a round."""

    model: BlobRef
    metrics: dict[str, float]  # of the round's training
    holdout: dict[str, float]  # of the global model that the round began with, on the devices' held-out samples


def close_round(
    state: StateDirectory, run: str, command: Reduce, specs: Sequence[TensorSpec]
) -> Reduction | Damaged | ReducingFailed:
    """Reduces a round and records it durably; the event that comes of it instead if that cannot be done. Blocking."""
    attempt = AttemptId(run=run, round=command.round, attempt=command.attempt)
    try:
        reduction = reduce_round(state, attempt, command.devices, specs)
        state.store.commit_round(
            attempt, command.devices, reduction.model, metrics=reduction.metrics, metrics_before=reduction.holdout
        )
    except DamagedUpdates as error:
        return Damaged(round=command.round, attempt=command.attempt, devices=error.devices)
    except Exception as error:
        _log.exception("%s cannot be reduced", attempt)
        told = isinstance(error, MoonfedError)
        reason = str(error) if told else "the updates could not be reduced; the coordinator's log says more"
        return ReducingFailed(round=command.round, attempt=command.attempt, reason=reason)
    return reduction


def reduce_round(
    state: StateDirectory, attempt: AttemptId, devices: Sequence[str], specs: Sequence[TensorSpec]
) -> Reduction:
    """The weighted mean of these devices' updates, in this order; DamagedUpdates, naming all of them."""
    answers = {answer.device: answer for answer in state.store.answers(attempt)}
    counted = [answers[device] for device in devices]
    if damaged := [answer.device for answer in counted if not _is_whole(state, answer)]:
        raise DamagedUpdates(damaged)
    contributions = [
        Contribution(path=state.update_file(attempt, answer.device), samples=answer.samples) for answer in counted
    ]
    path = state.spool(attempt) / "model"
    write_model(path, specs, weighted_mean(contributions, specs))
    sync_file(path)
    model = ref_of_file(path)
    state.blobs.put_file(path, model)
    return Reduction(model=model, metrics=train_metrics(counted), holdout=holdout_metrics(counted))


def train_metrics(answers: Sequence[Answer]) -> dict[str, float]:
    """`train_loss`: the devices' mean loss weighted by their samples, if they told one."""
    mean = _weighted_mean([(answer.samples, answer.metrics["loss"]) for answer in answers if "loss" in answer.metrics])
    return {} if mean is None else {"train_loss": mean}


def holdout_metrics(answers: Sequence[Answer]) -> dict[str, float]:
    """The means of `holdout_accuracy` and its like, weighted by `holdout_samples`, which is their sum."""
    told = [answer.metrics for answer in answers if answer.metrics.get(HOLDOUT_SAMPLES, 0) > 0]
    names = {name for metrics in told for name in metrics if name.startswith("holdout_") and name != HOLDOUT_SAMPLES}
    found = {HOLDOUT_SAMPLES: sum(metrics[HOLDOUT_SAMPLES] for metrics in told)} if told else {}
    for name in sorted(names):
        mean = _weighted_mean([(metrics[HOLDOUT_SAMPLES], metrics[name]) for metrics in told if name in metrics])
        found |= {} if mean is None else {name: mean}
    return found


def _weighted_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    """None if there is no mean, or none that the store could keep."""
    weight = sum(weight for weight, _ in pairs)
    mean = sum(weight * value for weight, value in pairs) / weight if weight > 0 else math.nan
    return mean if math.isfinite(mean) else None


def _is_whole(state: StateDirectory, answer: Answer) -> bool:
    try:
        return ref_of_file(state.update_file(answer.id, answer.device)) == answer.blobs[MODEL_ROLE]
    except OSError:  # gone, or on a bad sector
        return False
