"""The protocol of trackers, and the table of all trackers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from moonfed.command_line.programs import missing_package
from moonfed.coordinator.trackers.snapshot import RunSnapshot
from moonfed.errors import InvalidInput
from moonfed.validate import require, require_line


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """The operator's choice of where a run goes. `target` is a directory, a file, a server or a project."""

    target: str
    name: str  # of the run in the tracker
    identity: str  # of the run, by which a tracker finds it again
    experiment: str = ""
    devices: bool = False  # the snapshots have series of devices

    def __post_init__(self) -> None:
        require(bool(self.target), "target", self.target, "a directory, a file, a server or a project")
        require_line("name", self.name)
        require("/" not in self.name and self.name not in (".", ".."), "name", self.name, "one word without '/'")


class Tracker(Protocol):
    """A run in a tracker. Writing the same snapshot again, or in another process, changes nothing."""

    def write(self, snapshot: RunSnapshot) -> None:
        """Write what the tracker lacks, pictures and files included; raise Unavailable if a retry may succeed."""

    @property
    def place(self) -> str:
        """The run's place, for people."""


@dataclass(frozen=True, slots=True)
class TrackerKind:
    """A kind of tracker: the context manager that opens one, as `module:function`, and moonfed's extra for it."""

    entry: str
    extra: str
    target: str  # in the help
    named_experiments: bool = False
    table: str = ""  # the suffix of a target that takes metrics alone


TRACKERS: Mapping[str, TrackerKind] = {
    "tensorboard": TrackerKind("tensorboard_tracker:open_tensorboard", "tensorboard", "DIR"),
    "mlflow": TrackerKind("mlflow_tracker:open_mlflow", "mlflow", "URI", named_experiments=True),
    "wandb": TrackerKind("wandb_tracker:open_wandb", "wandb", "PROJECT"),
    "csv": TrackerKind("csv_files:open_csv", "coordinator", "FILE.csv|DIR", table=".csv"),
    "parquet": TrackerKind("parquet_files:open_parquet", "tables", "FILE.parquet|DIR", table=".parquet"),
}


def require_kind(kind: str, experiment: str) -> None:
    """Raise InvalidInput unless there is such a tracker, with experiments if one is named."""
    require(kind in TRACKERS, "to", kind, f"one of {', '.join(TRACKERS)}")
    if experiment and not TRACKERS[kind].named_experiments:
        raise InvalidInput(field="experiment", value=experiment, allowed=f"omitted with --to {kind}")


def takes_files(kind: str, target: str) -> bool:
    """Return whether a tracker takes more than metrics."""
    return not TRACKERS[kind].table or Path(target).suffix != TRACKERS[kind].table


def open_tracker(kind: str, options: TrackerOptions) -> AbstractContextManager[Tracker]:
    """Open a tracker; raise NotFound, naming the extra, if a package is missing."""
    chosen = TRACKERS[kind]
    module, function = chosen.entry.split(":")
    try:
        opened = getattr(importlib.import_module(f"{__package__}.{module}"), function)(options)
    except ModuleNotFoundError as error:
        raise missing_package(error, chosen.extra) from error
    assert isinstance(opened, AbstractContextManager)  # noqa: S101 - the table's own entries
    return opened
