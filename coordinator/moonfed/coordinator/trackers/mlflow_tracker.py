"""Export to MLflow: a tracking server, or a store on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moonfed.coordinator.trackers.snapshot import Point, RunSnapshot, Written
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.errors import InvalidInput, MoonfedError, Unavailable

# Before the package is imported. A user's own choice stands.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # so that a wrong address fails at once
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import mlflow
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "moonfed"
TAG = "moonfed.transport.identity"
BATCH = 1000  # metrics in one call; the server's limit
PARAMETERS = 100  # likewise
SHOWN = 200  # characters of an error
VALUE = 6000  # characters of a parameter, likewise
STATUS = {"running": "RUNNING", "paused": "RUNNING", "finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_UNSUITABLE = re.compile(r"[^\w\-. :/]", re.ASCII)


@contextmanager
def open_mlflow(options: TrackerOptions) -> Iterator[MlflowTracker]:
    """Open the run in an experiment, creating both where they do not exist."""
    with _explained(options.target):
        yield MlflowTracker(mlflow.MlflowClient(tracking_uri=options.target), options)


class MlflowTracker:
    """A run at a tracking server, found again by its tag."""

    def __init__(self, client: MlflowClient, options: TrackerOptions) -> None:
        self._client, self._options = client, options
        experiment = options.experiment or EXPERIMENT
        found = client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else client.create_experiment(experiment)
        self._place = f"experiment {experiment!r} at {options.target}"
        self._run, self._written = "", Written()
        self._parameters = set[str]()
        self._status = ""

    @property
    def place(self) -> str:
        """The experiment, and the run's id."""
        return f"{self._place}, run {self._run}"

    def write(self, snapshot: RunSnapshot) -> None:
        """Write what the server lacks."""
        with _explained(self._options.target):
            if not self._run:
                self._resume(snapshot)
            self._write_parameters(snapshot)
            self._write_points(snapshot)
            for name, path in snapshot.pictures.items():
                self._write_file(f"pictures/{name}.png", path)
            for name, path in snapshot.files.items():
                self._write_file(name, path)
            self._write_status(STATUS[snapshot.status])

    def _resume(self, snapshot: RunSnapshot) -> None:
        """Find the run that an earlier export has written, with what it has; else create it."""
        mine = f"tags.`{TAG}` = '{snapshot.identity}'"
        found = self._client.search_runs([self._experiment], mine, max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._parameters = set(found[0].data.params)
            for name in found[0].data.metrics:
                for metric in self._client.get_metric_history(self._run, name):
                    self._written.add(Point(metric.step, name, metric.value, 0.0))
        else:
            tags = {TAG: snapshot.identity, "moonfed.run": snapshot.run}
            created = self._client.create_run(
                self._experiment,
                start_time=_milliseconds(snapshot.created),
                tags=tags,
                run_name=self._options.name,
            )
            self._run = created.info.run_id
        if self._options.name != (found[0].info.run_name if found else self._options.name):
            self._client.set_tag(self._run, "mlflow.runName", self._options.name)

    def _write_parameters(self, snapshot: RunSnapshot) -> None:
        values = {_key(name): str(value)[:VALUE] for name, value in snapshot.parameters.items()}
        new = [Param(name, value) for name, value in values.items() if name not in self._parameters]
        for batch in _batches(iter(new), PARAMETERS):
            self._client.log_batch(self._run, params=batch)
            self._parameters |= {parameter.key for parameter in batch}

    def _write_points(self, snapshot: RunSnapshot) -> None:
        found = (Point(point.round, _key(point.name), point.value, point.time) for point in snapshot.all_points())
        renamed = RunSnapshot(
            run=snapshot.run,
            identity=snapshot.identity,
            status=snapshot.status,
            created=snapshot.created,
            parameters={},
            points=tuple(found),
        )
        for batch in _batches(iter(self._written.missing(renamed)), BATCH):
            metrics = [Metric(point.name, point.value, _milliseconds(point.time), point.round) for point in batch]
            self._client.log_batch(self._run, metrics=metrics)
            for point in batch:
                self._written.add(point)

    def _write_file(self, name: str, path: Path) -> None:
        """Write an artifact; it takes the file's own name, in the folder of `name`."""
        self._client.log_artifact(self._run, str(path), name.rpartition("/")[0] or None)

    def _write_status(self, status: str) -> None:
        if status == self._status:
            return
        if status == "RUNNING":
            self._client.update_run(self._run, status)
        else:
            self._client.set_terminated(self._run, status)
        self._status = status


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """Explain MLflow's errors in one sentence."""
    try:
        yield
    except MlflowException as error:
        raise _reason(uri, error) from error
    except OSError as error:  # of the HTTP client
        if error.filename:
            raise
        raise Unavailable(f"MLflow at {uri} does not answer: {_shortened(error)}", field="MLflow", value=uri) from error


def _reason(uri: str, error: MlflowException) -> MoonfedError:
    sentence = _shortened(error)
    passing: Mapping[str, Any] = dict.fromkeys(("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"))
    if error.error_code in passing:
        return Unavailable(f"MLflow at {uri} is not available: {sentence}", field="MLflow", value=uri)
    return InvalidInput(f"MLflow at {uri} rejects the run: {sentence}")


def _shortened(error: Exception) -> str:
    sentence = " ".join(str(error).split())
    return sentence if len(sentence) <= SHOWN else f"{sentence[:SHOWN]}…"


def _batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch


def _key(name: str) -> str:
    """Return a name that MLflow accepts: `accuracy@night` becomes `accuracy/night`."""
    return _UNSUITABLE.sub("_", name.replace("@", "/"))


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
