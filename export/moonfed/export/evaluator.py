"""The evaluator: it scores a run's global models on a test set through the ONNX graph, and records the results.

The coordinator never runs a model, so this is a separate process. It can stop and start at any time: it first scores
every model that has no score on the test set, including the run's initial weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.bundle.manifest import GRAPH_FILE, Manifest
from moonfed.client import Run
from moonfed.control.held_out_score import DEFAULT_TEST_SET, HeldOutScore, require_test_set
from moonfed.data.source import Source
from moonfed.errors import InvalidInput, NotFound, Unavailable
from moonfed.export.binding import bind_file
from moonfed.export.coordinator_client import CoordinatorClient, GlobalModel, global_models
from moonfed.export.run_watcher import WAIT_LIMIT, watch_run
from moonfed.export.scoring import HeldOutData, Predictor
from moonfed.tasks import TASKS
from moonfed.tasks.added_metric import AddedMetric, read_added_metrics
from moonfed.transport.client import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundScore:
    """The score of one global model."""

    round: int
    score: HeldOutScore
    seconds: float  # including fetching the model


def score_model(
    graph: bytes, model: Path, manifest: Manifest, data: HeldOutData, added: Sequence[AddedMetric] = ()
) -> HeldOutScore:
    """Return the results of a model file bound into a bundle's graph."""
    return Predictor(bind_file(graph, model, manifest)).held_out_score(data, manifest, added)


def newest_score(scores: Mapping[int, HeldOutScore]) -> RoundScore | None:
    """Return the recorded score of the newest model; None if there is none."""
    newest = max(scores, default=None)
    return None if newest is None else RoundScore(round=newest, score=scores[newest], seconds=0.0)


def read_held_out(name: str, data: Source, manifest: Manifest) -> HeldOutData:
    """Read a test set; InvalidInput if it is empty or does not fit the bundle."""
    samples = data.read(manifest.input, manifest.target)
    samples.require_samples()
    return HeldOutData(name=name, sha256=samples.sha256(), samples=samples)


def open_evaluator(
    runs: CoordinatorClient,
    run: str,
    data: Source,
    *,
    test_set: str = DEFAULT_TEST_SET,
    metrics: Sequence[str] = (),
    again: bool = False,
    on_score: Callable[[RoundScore], None],
    on_unavailable: Callable[[Unavailable], None],
    wait: bool,
) -> Evaluator:
    """Create an evaluator of a run on test data; with `wait`, retry until the coordinator is available.

    `metrics`: names of packages', besides the task's. Raises InvalidInput if the data do not fit the run, or differ
    from those that models were scored on before.
    """
    require_test_set(test_set)
    added = read_added_metrics(metrics)
    backoff = Backoff(limit=WAIT_LIMIT)
    while True:
        try:
            manifest = runs.manifest(runs.run(run))
            _require_task(manifest)
            held_out = read_held_out(test_set, data, manifest)
            if not again:
                _require_same_data(runs, run, held_out)
            return Evaluator(
                runs,
                run,
                manifest,
                held_out,
                added=added,
                again=again,
                on_score=on_score,
                on_unavailable=on_unavailable,
            )
        except Unavailable as error:
            if not wait:
                raise
            on_unavailable(error)
        time.sleep(backoff.next())


def _require_task(manifest: Manifest) -> None:
    """Raise InvalidInput unless the task's package is installed here, and is the one that the bundle was built with."""
    task = TASKS.build(manifest.task)
    if task.metric != replace(manifest.metric, unit=""):
        raise InvalidInput(
            f"task {manifest.task.name!r} has the metric {task.metric.name} here, but the bundle "
            f"{manifest.metric.name}; install the release of its package that the bundle was built with",
            field="metric",
            value=task.metric.name,
        )


def _require_same_data(runs: CoordinatorClient, run: str, data: HeldOutData) -> None:
    """Raise InvalidInput if a model was scored on other data under this name: their figures cannot be compared."""
    for score in runs.scores(run, data.name).values():
        if score.sha256 != data.sha256:
            raise InvalidInput(
                f"{data.samples.origin} has the sha256 {data.sha256[:12]}…, but the scores on test set {data.name!r} "
                f"of run {run!r} are of data with the sha256 {score.sha256[:12]}…; give another --test-set, or "
                "--again to replace those scores",
                field="data of test set",
                value=data.name,
            )


class Evaluator:
    """An evaluator of one run's models on one test set."""

    def __init__(
        self,
        runs: CoordinatorClient,
        run: str,
        manifest: Manifest,
        data: HeldOutData,
        *,
        added: Sequence[AddedMetric] = (),
        again: bool = False,
        on_score: Callable[[RoundScore], None],
        on_unavailable: Callable[[Unavailable], None],
    ) -> None:
        """`again`: whether to score models that have a score already, once. `added`: metrics besides the task's."""
        self._added, self._wanted = added, {metric.name for metric in added}
        self._again, self._done = again, set[int]()
        self._unconfirmed: dict[int, RoundScore] = {}  # a lost connection may have cut the receipt of the last one
        self._runs = runs
        self._run = run
        self._manifest = manifest
        self._data = data
        self._on_score, self._on_unavailable = on_score, on_unavailable
        self._graph = runs.fetch(manifest.files[GRAPH_FILE]).read_bytes()

    def catch_up(self) -> bool:
        """Score every global model without a score that has all metrics; return False once the run has ended."""
        run = self._runs.run(self._run)
        scores = {} if self._again else self._runs.scores(self._run, self._data.name)
        done = self._done | {round_ for round_, score in scores.items() if self._wanted <= score.metrics.keys()}
        for model in self._models(run):
            if model.round in done:
                self._confirm(model.round)
            else:
                self._evaluate_unless_deleted(run, model)
        return run.active

    def follow(self) -> None:
        """Score new models until the run has ended, waiting for the coordinator when it is unavailable."""
        watch_run(self._runs, self._run, on_model=self.catch_up, on_unavailable=self._on_unavailable)

    def _models(self, run: Run) -> list[GlobalModel]:
        return global_models(run, self._runs.rounds(self._run))

    def _evaluate_unless_deleted(self, run: Run, model: GlobalModel) -> None:
        """Evaluate a model unless the coordinator has deleted it meanwhile."""
        try:
            self._evaluate(model)
        except NotFound:
            if model.round in [remaining.round for remaining in self._models(run)]:
                raise

    def _evaluate(self, model: GlobalModel) -> None:
        started = time.monotonic()
        path = self._runs.fetch(model.ref)
        score = score_model(self._graph, path, self._manifest, self._data, self._added)
        seconds = time.monotonic() - started
        self._unconfirmed[model.round] = RoundScore(round=model.round, score=score, seconds=seconds)
        self._runs.record_score(self._run, model.round, score)
        self._runs.remove(model.ref)
        self._done.add(model.round)
        self._confirm(model.round)

    def _confirm(self, round_number: int) -> None:
        """Report a score that is recorded, once."""
        if found := self._unconfirmed.pop(round_number, None):
            self._on_score(found)
