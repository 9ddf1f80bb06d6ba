"""A run's settings as an operator writes them: the options of `run start`, and the keys of a recipe in TOML.

A recipe describes a run, and the fleet on which it is simulated before. `run start` uses the keys of the run;
`moonfed-experiments simulate` uses both. So what was simulated is what runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import tomllib

from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.aggregation.compatibility import default_bounds
from moonfed.coordinator.aggregation.robust.config import RobustSettings, read_robust_settings
from moonfed.coordinator.rounds.fedbuff_settings import parse_asynchronous
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rounds.settings import (
    MAX_ATTEMPTS,
    RunSettings,
    parse_amount,
    parse_fraction,
    parse_sampling,
)
from moonfed.encodings import parse_encodings
from moonfed.errors import InvalidInput
from moonfed.files import require_file
from moonfed.formatting import percent_text
from moonfed.registry import Value, read_value

RECIPE_BYTES = 1 << 20  # at most
ROBUST, LABELS = "robust", "labels"  # the tables
FLEET_KEYS = (  # of a simulation alone
    "name", "target", "train_samples", "test_samples",
    "parties", "partition", "beta", "by", "partition_seed", "dropouts", "stragglers",
)  # fmt: skip
_BARE = re.compile("[A-Za-z0-9_-]+")  # keys that need no quotes
_WHOLE = ("rounds", "minimum_devices", "max_attempts", "asynchronous", "max_staleness", "exclude_after", "seed",
          "keep_last", "keep_every")  # fmt: skip
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(_WHOLE, int),
    **dict.fromkeys(("deadline", "heartbeat_timeout"), float),
    **dict.fromkeys(("trusted_labels", "trusting"), bool),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecipe:
    """The settings of a run; the defaults are those of `run start`.

    `robust`: bounds and a reducer with its settings; without any, and unless `trusting`, the bundle's default bounds.
    """

    rounds: int = 10
    cohort: str = "all"
    minimum_devices: int = 1
    quorum: str = "50%"
    deadline: float = 3600.0
    max_attempts: int = MAX_ATTEMPTS
    heartbeat_timeout: float = 120.0
    over_selection: str = "0%"
    asynchronous: int | None = None
    max_staleness: int | None = None
    trusted_labels: bool = False
    sampling: str = "uniform"
    uplink_encoding: str = "float32"
    downlink_encoding: str = "float32"
    trusting: bool = False
    exclude_after: int = 0
    seed: int = 0
    keep_last: int = 20
    keep_every: int = 100
    labels: Mapping[str, str] = field(default_factory=dict)
    robust: Mapping[str, Value] = field(default_factory=dict)

    def settings(self, manifest: Manifest) -> RunSettings:
        """Return the settings of a run from that bundle; InvalidInput names the key that is wrong."""
        robust = read_robust_settings(self.robust)
        if self.trusting and robust:
            raise InvalidInput("trusting is given together with bounds or a reducer; it must be given alone")
        return RunSettings(
            rounds=self.rounds,
            cohort=parse_amount("cohort", self.cohort),
            minimum_devices=self.minimum_devices,
            quorum=parse_amount("quorum", self.quorum),
            deadline_seconds=self.deadline,
            max_attempts=self.max_attempts,
            heartbeat_timeout_seconds=self.heartbeat_timeout,
            over_selection=parse_fraction("over_selection", self.over_selection),
            labels=self.labels,
            trusted_labels=self.trusted_labels,
            asynchronous=parse_asynchronous(self.asynchronous, self.max_staleness),
            seed=self.seed,
            sampling=parse_sampling(self.sampling),
            encodings=parse_encodings(self.downlink_encoding, self.uplink_encoding),
            retention=Retention(last=self.keep_last, every=self.keep_every),
            robust=robust if robust or self.trusting else default_bounds(manifest),
            exclude_after=self.exclude_after,
        )

    def to_document(self) -> dict[str, Any]:
        """Return the keys that a recipe in TOML needs, tables last."""
        document = {key: value for key, value in asdict(self).items() if value not in (None, {})}
        if document.get("trusting") is False:
            del document["trusting"]
        return document


RUN_KEYS = tuple(item.name for item in fields(RunRecipe))


def recipe_of(settings: RunSettings) -> RunRecipe:
    """Return the recipe whose settings are these, whatever the bundle."""
    asynchronous = settings.asynchronous
    return RunRecipe(
        rounds=settings.rounds,
        cohort=str(settings.cohort),
        minimum_devices=settings.minimum_devices,
        quorum=str(settings.quorum),
        deadline=settings.deadline_seconds,
        max_attempts=settings.max_attempts,
        heartbeat_timeout=settings.heartbeat_timeout_seconds,
        over_selection=percent_text(settings.over_selection),
        asynchronous=asynchronous.buffer if asynchronous else None,
        max_staleness=asynchronous.max_staleness if asynchronous else None,
        labels=dict(settings.labels),
        trusted_labels=settings.trusted_labels,
        sampling=settings.sampling,
        uplink_encoding=str(settings.encodings.up),
        downlink_encoding=str(settings.encodings.down),
        robust=_robust_table(settings.robust) if settings.robust else {},
        trusting=not settings.robust,
        exclude_after=settings.exclude_after,
        seed=settings.seed,
        keep_last=settings.retention.last,
        keep_every=settings.retention.every,
    )


def _robust_table(robust: RobustSettings) -> dict[str, Value]:
    document = robust.to_document()
    reducer = document.pop("reducer")
    return {**document, "reducer": reducer.pop("name"), **{key: _number(value) for key, value in reducer.items()}}


def _number(value: Value) -> Value:
    """Return the number that a setting is, which the coordinator may hold as text."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value) if isinstance(value, str) else value
    return value


def read_run_recipe(document: Mapping[str, Any]) -> RunRecipe:
    """Read the keys of a run, as a recipe or a command line has them; InvalidInput names a wrong one."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key not in RUN_KEYS:
            known = ", ".join(sorted((*RUN_KEYS, *FLEET_KEYS)))
            raise InvalidInput(f"{key} (= {value!r}) is not a key of a run's recipe; the keys are {known}")
        if key in (ROBUST, LABELS):
            values[key] = _read_table(key, value)
        elif isinstance(value, bool | int | float | str):
            values[key] = read_value(key, value, _KINDS.get(key, str))
        else:
            raise InvalidInput(f"{key} is {value!r}; it must be a number or text")
    return RunRecipe(**values)


def _read_table(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} is {value!r}; it must be a table, [{name}]")
    for key, item in value.items():
        if not isinstance(item, bool | int | float | str):
            raise InvalidInput(f"{name}.{key} is {item!r}; it must be a number or text")
    return {key: str(item) for key, item in value.items()} if name == LABELS else dict(value)


def read_recipe_file(path: Path) -> dict[str, Any]:
    """Read a recipe's keys and tables from TOML; InvalidInput if it is not TOML."""
    require_file("recipe", path)
    try:
        with path.open("rb") as file:
            content = file.read(RECIPE_BYTES + 1)
        if len(content) > RECIPE_BYTES:
            raise InvalidInput(f"{path} has more than {RECIPE_BYTES:,} bytes; is it a recipe?")
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error


def run_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's keys of the run, without those of the simulated fleet."""
    return {key: value for key, value in document.items() if key not in FLEET_KEYS}


def to_toml(document: Mapping[str, Any]) -> str:
    """Return keys and tables as TOML, tables last. Names and text are quoted as in JSON, which TOML reads alike."""
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {_literal(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{_key(key)} = {_literal(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _literal(key)


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
