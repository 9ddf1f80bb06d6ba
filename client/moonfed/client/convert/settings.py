"""Conversion of a run's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from moonfed.client.records.settings import RunSettings
from moonfed.errors import InvalidInput
from moonfed.files import require_file
from moonfed.formatting import percent_text
from moonfed.v1 import control_pb2

BOUNDS = ("weight_cap", "clip_norm", "clip_factor")


def recipe_message(recipe: Path | None, settings: Mapping[str, Any]) -> str:
    """Return a recipe as the coordinator reads it: the keys of a file in TOML, overridden by settings."""
    document = {**(_read_toml(recipe) if recipe else {}), **settings}
    try:
        return json.dumps(document)
    except TypeError as error:
        raise InvalidInput(f"settings are {document!r}; they must be numbers, text or tables of them") from error


def run_settings(message: control_pb2.RunSettings) -> RunSettings:
    """Return all settings of a run by the keys of a recipe."""
    settings = RunSettings(
        rounds=message.rounds,
        cohort=_amount(message.cohort),
        minimum_devices=message.minimum_devices,
        quorum=_amount(message.quorum),
        deadline=message.deadline_seconds,
        max_attempts=message.max_attempts,
        heartbeat_timeout=message.heartbeat_timeout_seconds,
        over_selection=percent_text(message.over_selection),
        trusted_labels=message.trusted_labels,
        sampling=control_pb2.Sampling.Name(message.sampling).removeprefix("SAMPLING_").lower(),
        uplink_encoding=message.uplink_encoding,
        downlink_encoding=message.downlink_encoding,
        trusting=not message.HasField("robust"),
        exclude_after=message.exclude_after,
        seed=message.seed,
        keep_last=message.retention.last,
        keep_every=message.retention.every,
        labels=dict(message.labels),
        robust=_robust(message.robust) if message.HasField("robust") else {},
    )
    if message.HasField("asynchronous"):
        settings["asynchronous"] = message.asynchronous.buffer
        settings["max_staleness"] = message.asynchronous.max_staleness
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # which Python 3.10 does not have

    require_file("recipe", path)
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error


def _amount(amount: control_pb2.Amount) -> str:
    return str(amount.count) if amount.WhichOneof("amount") == "count" else percent_text(amount.fraction)


def _robust(message: control_pb2.RobustSettings) -> dict[str, float | str]:
    bounds: dict[str, float | str] = {name: getattr(message, name) for name in BOUNDS}
    return {**bounds, "reducer": message.reducer, **{key: _number(v) for key, v in message.reducer_settings.items()}}


def _number(text: str) -> float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
