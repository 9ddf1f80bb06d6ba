"""Export to Weights & Biases: to files on this machine, unless WANDB_MODE says online."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moonfed.coordinator.trackers.snapshot import Point, RunSnapshot, Written
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.errors import InvalidInput, Unavailable

# Before the package is imported. A user's own choice stands.
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
os.environ.setdefault("WANDB_SILENT", "true")

import wandb
from wandb.errors import CommError

ROUND = "round"  # the axis of all series
CURSOR = "moonfed"  # in the summary: the newest round that each series has, by which an online export resumes


@contextmanager
def open_wandb(options: TrackerOptions) -> Iterator[WandbTracker]:
    """Open the run in a project, or ENTITY/PROJECT."""
    entity, _, project = options.target.rpartition("/")
    try:
        tracker = WandbTracker(entity, project, options)
    except wandb.Error as error:
        kind = Unavailable if isinstance(error, CommError) else InvalidInput
        raise kind(f"Weights & Biases does not start: {' '.join(str(error).split())}") from error
    try:
        yield tracker
    finally:
        tracker.close()


class WandbTracker:
    """A run in a project. Online, an export resumes the run; offline, it replaces the files of an earlier one."""

    def __init__(self, entity: str, project: str, options: TrackerOptions) -> None:
        offline = os.environ["WANDB_MODE"] != "online"
        settings = wandb.Settings(
            console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        self._run = wandb.init(
            entity=entity or None,
            project=project,
            id=options.identity,
            name=options.name,
            resume=None if offline else "allow",
            settings=settings,
        )
        self._offline = offline
        self._written = Written()
        self._ended = ""
        self._files = set[str]()
        self._run.define_metric(ROUND)
        self._run.define_metric("*", step_metric=ROUND)
        found = {} if offline else self._run.summary.get(CURSOR)  # type: ignore[no-untyped-call]
        self._cursor: dict[str, int] = {str(name): int(round_) for name, round_ in dict(found or {}).items()}
        self._resumed = dict(self._cursor)

    @property
    def place(self) -> str:
        """The files, with the command that uploads them, or the page."""
        if self._offline:
            shown = self._directory
            shown = shown.relative_to(Path.cwd()) if shown.is_relative_to(Path.cwd()) else shown
            return f"{shown}; `wandb sync {shown}` uploads it"
        return str(self._run.url)

    @property
    def _directory(self) -> Path:
        return Path(self._run.settings.sync_dir)

    def write(self, snapshot: RunSnapshot) -> None:
        """Log what the run lacks: one row per round, and further rows for metrics that come later."""
        parameters = dict(snapshot.parameters)
        self._run.config.update(parameters, allow_val_change=True)  # type: ignore[no-untyped-call]
        rows: dict[int, dict[str, Any]] = {}
        for point in self._written.missing(snapshot):
            if point.round > self._resumed.get(point.name, -1):
                rows.setdefault(point.round, {})[point.name] = point.value
            self._note(point)
        for round_, values in sorted(rows.items()):
            self._run.log({ROUND: round_, **values})
        for name, path in snapshot.pictures.items():
            self._run.log({f"pictures/{name}": wandb.Image(str(path))})
        if snapshot.files:
            self._write_files(snapshot)
        self._run.summary.update({CURSOR: self._cursor, "status": snapshot.status})
        self._ended = snapshot.status if snapshot.ended else ""

    def _note(self, point: Point) -> None:
        self._written.add(point)
        self._cursor[point.name] = max(point.round, self._cursor.get(point.name, -1))

    def _write_files(self, snapshot: RunSnapshot) -> None:
        artifact = wandb.Artifact(f"{snapshot.run}-model", type="model")
        for name, path in snapshot.files.items():
            artifact.add_file(str(path), name=name)
        self._run.log_artifact(artifact)

    def close(self) -> None:
        """End the run; delete the files of an earlier offline export, which this one replaces."""
        directory = self._directory
        self._run.finish(exit_code=1 if self._ended == "failed" else 0)
        if self._offline and directory.is_dir():
            for other in directory.parent.glob(f"offline-run-*-{self._run.id}"):
                if other != directory:
                    shutil.rmtree(other)
