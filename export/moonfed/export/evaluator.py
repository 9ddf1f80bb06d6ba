"""The evaluator: scores a run's global models on held-out data, through the ONNX graph, and reports the metrics.

The coordinator never runs a model, so this is a process of its own. It can come and go: whatever has no metrics yet,
the weights that the run started from included, is scored first.
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
    seconds: float  # from fetching the model to its score


def score_model(graph: bytes, model: Path, manifest: Manifest, data: RawSamples) -> Score:
    """Accuracy and loss of a model file bound into a bundle's graph."""
    return Predictor(bind_file(graph, model, manifest)).score(data.inputs, data.labels)


def open_evaluator(
    runs: CoordinatorClient,
    run: str,
    data: Path,
    *,
    scored: Callable[[RoundScore], None],
    away: Callable[[Unavailable], None],
    patient: bool,
) -> Evaluator:
    """An evaluator of a run on a .npz of test data; a patient one waits for a coordinator that is away."""
    backoff = Backoff(limit=WAIT_LIMIT)
    while True:
        try:
            manifest = runs.manifest(runs.get(run))
            samples = read_npz(data, manifest.input, manifest.classes)
            if len(samples) == 0:
                raise InvalidInput(f"{data} holds no samples; at least one is needed")
            return Evaluator(runs, run, manifest, samples, scored=scored, away=away)
        except Unavailable as problem:
            if not patient:
                raise
            away(problem)
        time.sleep(backoff.next())


class Evaluator:
    """Scores the models of one run."""

    def __init__(
        self,
        runs: CoordinatorClient,
        run: str,
        manifest: Manifest,
        data: RawSamples,
        *,
        scored: Callable[[RoundScore], None],
        away: Callable[[Unavailable], None],
    ) -> None:
        self._runs, self._run, self._manifest, self._data = runs, run, manifest, data
        self._scored, self._away = scored, away
        self._graph = runs.fetch(manifest.files[GRAPH_FILE]).read_bytes()

    def catch_up(self) -> bool:
        """Scores every global model without metrics; returns whether the run still goes on."""
        run = self._runs.get(self._run)
        for model in self._models(run):
            if "accuracy" not in model.metrics:
                self._evaluate_unless_deleted(run, model)
        return run.status == control_pb2.RUN_STATUS_RUNNING

    def follow(self) -> None:
        """Scores models as they come until the run has ended; a coordinator that is away is waited for."""
        watch_run(self._runs, self._run, look=self.catch_up, away=self._away)

    def _models(self, run: control_pb2.Run) -> list[GlobalModel]:
        return global_models(run, self._runs.rounds(self._run), self._manifest)

    def _evaluate_unless_deleted(self, run: control_pb2.Run, model: GlobalModel) -> None:
        """The coordinator may delete an old model while we are on our way to it."""
        try:
            self._evaluate(model)
        except NotFound:
            if model.round in [still_there.round for still_there in self._models(run)]:
                raise

    def _evaluate(self, model: GlobalModel) -> None:
        started = time.monotonic()
        path = self._runs.fetch(model.ref)
        score = score_model(self._graph, path, self._manifest, self._data)
        self._runs.record(self._run, model.round, asdict(score))
        self._runs.forget(model.ref)
        self._scored(RoundScore(round=model.round, score=score, seconds=time.monotonic() - started))
