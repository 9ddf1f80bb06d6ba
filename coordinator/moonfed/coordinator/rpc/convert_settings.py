"""Conversion of a run's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from moonfed.coordinator.aggregation.robust.config import RobustSettings
from moonfed.coordinator.aggregation.robust.reducers import DEFAULT_REDUCER
from moonfed.coordinator.rounds.fedbuff_settings import FedBuffSettings
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rounds.run_recipe import RunRecipe, read_run_recipe, run_keys
from moonfed.coordinator.rounds.settings import MAX_ATTEMPTS, Amount, RunSettings, Sampling
from moonfed.encodings import parse_encodings
from moonfed.errors import InvalidInput
from moonfed.registry import Selection
from moonfed.v1 import control_pb2

_SAMPLING: Mapping[Sampling, control_pb2.Sampling.ValueType] = {
    "uniform": control_pb2.SAMPLING_UNIFORM,
    "samples": control_pb2.SAMPLING_SAMPLES,
}

# Messages in


def run_settings(message: control_pb2.RunSettings) -> RunSettings:
    """Convert a run's settings."""
    return RunSettings(
        rounds=message.rounds,
        cohort=_amount(message.cohort),
        minimum_devices=message.minimum_devices,
        quorum=_amount(message.quorum),
        deadline_seconds=message.deadline_seconds,
        heartbeat_timeout_seconds=message.heartbeat_timeout_seconds,
        seed=message.seed,
        sampling=_sampling(message.sampling),
        encodings=parse_encodings(message.downlink_encoding, message.uplink_encoding),
        retention=retention(message.retention) if message.HasField("retention") else Retention(),
        over_selection=message.over_selection,
        labels=dict(message.labels),
        trusted_labels=message.trusted_labels,
        asynchronous=_asynchronous(message),
        robust=_robust(message.robust),
        max_attempts=message.max_attempts or MAX_ATTEMPTS,
        exclude_after=message.exclude_after,
    )


def run_recipe(text: str) -> RunRecipe:
    """Convert a recipe in JSON; keys of the simulated fleet are ignored, as `run start` does."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"recipe is {text[:40]!r}; it must be JSON") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"recipe is {text[:40]!r}; it must be a JSON object")
    return read_run_recipe(run_keys(document))


def retention(message: control_pb2.Retention) -> Retention:
    """Convert the retention of global models."""
    return Retention(last=message.last, every=message.every)


def _robust(message: control_pb2.RobustSettings) -> RobustSettings:
    return RobustSettings(
        weight_cap=message.weight_cap,
        clip_norm=message.clip_norm,
        clip_factor=message.clip_factor,
        reducer=Selection(message.reducer or DEFAULT_REDUCER.name, dict(message.reducer_settings)),
    )


def _asynchronous(message: control_pb2.RunSettings) -> FedBuffSettings | None:
    if not message.HasField("asynchronous"):
        return None
    return FedBuffSettings(buffer=message.asynchronous.buffer, max_staleness=message.asynchronous.max_staleness)


def _sampling(value: int) -> Sampling:
    if value in (control_pb2.SAMPLING_UNSPECIFIED, control_pb2.SAMPLING_UNIFORM):
        return "uniform"
    if value == control_pb2.SAMPLING_SAMPLES:
        return "samples"
    raise InvalidInput(f"sampling is {value}, which this release does not know; it must be uniform or samples")


def _amount(message: control_pb2.Amount) -> Amount:
    if message.WhichOneof("amount") == "count":
        return Amount(count=message.count)
    return Amount(fraction=message.fraction)  # an empty amount becomes the fraction 0, which is rejected


# Messages out


def settings_message(values: RunSettings) -> control_pb2.RunSettings:
    """Convert a run's settings."""
    return control_pb2.RunSettings(
        rounds=values.rounds,
        cohort=_amount_message(values.cohort),
        minimum_devices=values.minimum_devices,
        quorum=_amount_message(values.quorum),
        deadline_seconds=values.deadline_seconds,
        heartbeat_timeout_seconds=values.heartbeat_timeout_seconds,
        seed=values.seed,
        sampling=_SAMPLING[values.sampling],
        downlink_encoding=str(values.encodings.down),
        uplink_encoding=str(values.encodings.up),
        retention=control_pb2.Retention(last=values.retention.last, every=values.retention.every),
        over_selection=values.over_selection,
        labels=dict(values.labels),
        trusted_labels=values.trusted_labels,
        asynchronous=_asynchronous_message(values),
        robust=_robust_message(values.robust) if values.robust else None,
        max_attempts=values.max_attempts,
        exclude_after=values.exclude_after,
    )


def _robust_message(values: RobustSettings) -> control_pb2.RobustSettings:
    return control_pb2.RobustSettings(
        weight_cap=values.weight_cap,
        clip_norm=values.clip_norm,
        clip_factor=values.clip_factor,
        reducer=values.reducer.name,
        reducer_settings={key: str(value) for key, value in values.reducer.settings.items()},
    )


def _asynchronous_message(values: RunSettings) -> control_pb2.Asynchronous | None:
    chosen = values.asynchronous
    return control_pb2.Asynchronous(buffer=chosen.buffer, max_staleness=chosen.max_staleness) if chosen else None


def _amount_message(amount: Amount) -> control_pb2.Amount:
    if amount.count is not None:
        return control_pb2.Amount(count=amount.count)
    return control_pb2.Amount(fraction=amount.fraction or 0.0)
