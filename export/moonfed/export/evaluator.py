"""The evaluator: it scores a run's global models on held-out data through the ONNX graph, and records the metrics.

The coordinator never runs a model, so this is a separate process. It can stop and start at any time: it first scores
every model without metrics, including the run's initial weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from moonfed.errors import InvalidInput, NotFound, Unavailable
from moonfed.export.binding import bind_file
from moonfed.export.coordinator_client import CoordinatorClient, GlobalModel, global_models
from moonfed.export.run_watcher import WAIT_LIMIT, watch_run
from moonfed.export.scoring import Predictor, Score
from moonfed.manifest import GRAPH_FILE, Manifest
from moonfed.samples import RawSamples, read_npz
from moonfed.transport import Backoff
from moonfed.v1 import control_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundScore:
    """The score of one global model."""

    round: int
    score: Score
    seconds: float  # including fetching the model


def score_model(graph: bytes, model: Path, manifest: Manifest, data: RawSamples) -> Score:
    """Return accuracy and loss of a model file bound into a bundle's graph."""
    return Predictor(bind_file(graph, model, manifest)).score(data.inputs, data.labels)


def open_evaluator(
    runs: CoordinatorClient,
    run: str,
    data: Path,
    *,
    on_score: Callable[[RoundScore], None],
    on_unavailable: Callable[[Unavailable], None],
    wait: bool,
) -> Evaluator:
    """Create an evaluator of a run on a .npz of test data; with `wait`, retry until the coordinator is available."""
    backoff = Backoff(limit=WAIT_LIMIT)
    while True:
        try:
            manifest = runs.manifest(runs.get(run))
            samples = read_npz(data, manifest.input, manifest.classes)
            if len(samples) == 0:
                raise InvalidInput(f"{data} holds no samples; at least one is needed")
            return Evaluator(runs, run, manifest, samples, on_score=on_score, on_unavailable=on_unavailable)
        except Unavailable as error:
            if not wait:
                raise
            on_unavailable(error)
        time.sleep(backoff.next())


class Evaluator:
    """An evaluator of one run's models."""

    def __init__(
        self,
        runs: CoordinatorClient,
        run: str,
        manifest: Manifest,
        data: RawSamples,
        *,
        on_score: Callable[[RoundScore], None],
        on_unavailable: Callable[[Unavailable], None],
    ) -> None:
        self._runs, self._run, self._manifest, self._data = runs, run, manifest, data
        self._on_score, self._on_unavailable = on_score, on_unavailable
        self._graph = runs.fetch(manifest.files[GRAPH_FILE]).read_bytes()

    def catch_up(self) -> bool:
        """Score every global model that has no metrics yet; return whether the run is still running."""
        run = self._runs.get(self._run)
        for model in self._models(run):
            if "accuracy" not in model.metrics:
                self._evaluate_unless_deleted(run, model)
        return run.status == control_pb2.RUN_STATUS_RUNNING

    def follow(self) -> None:
        """Score new models until the run has ended, waiting for the coordinator when it is unavailable."""
        watch_run(self._runs, self._run, on_model=self.catch_up, on_unavailable=self._on_unavailable)

    def _models(self, run: control_pb2.Run) -> list[GlobalModel]:
        return global_models(run, self._runs.rounds(self._run), self._manifest)

    def _evaluate_unless_deleted(self, run: control_pb2.Run, model: GlobalModel) -> None:
        """Evaluate a model unless the coordinator has deleted it meanwhile."""
        try:
            self._evaluate(model)
        except NotFound:
            if model.round in [remaining.round for remaining in self._models(run)]:
                raise

    def _evaluate(self, model: GlobalModel) -> None:
        started = time.monotonic()
        path = self._runs.fetch(model.ref)
        score = score_model(self._graph, path, self._manifest, self._data)
        self._runs.record(self._run, model.round, asdict(score))
        self._runs.remove(model.ref)
        self._on_score(RoundScore(round=model.round, score=score, seconds=time.monotonic() - started))
