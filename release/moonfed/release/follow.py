"""Following a run: publishing its newest round that passes a gate.

The repository is the only state. Rounds up to the newest version are never considered, so a version that was rolled
back stays unserved and is not published again; a later round may replace it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.bundle.manifest import Manifest
from moonfed.data.data_set import DataSet
from moonfed.data.source import Source
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient, global_models
from moonfed.export.scoring import Predictor, Score
from moonfed.models.repository import MODEL_FILE
from moonfed.release.model_facts import input_spec, target_spec
from moonfed.release.model_file import CheckedModel, check_model
from moonfed.release.publish import candidate_of_run, publish
from moonfed.release.repository import ModelDirectory
from moonfed.signing.release_signature import ReleaseKey
from moonfed.validate import require_at_least

MARGIN = 0.5  # points of a share, or percent
AT_LEAST = 0.0  # any
KEPT = 5  # versions


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowGate:
    """The condition for publishing a round: its metric on the data at most the margin worse than the served version's.

    The first version has nothing to be compared with; it needs `at_least`, and so does every later one.
    """

    data: Source
    margin: float = MARGIN  # see `Score.drop_from`
    at_least: float = AT_LEAST  # percent of a share, or the worst value of another metric; 0: any

    def __post_init__(self) -> None:
        require_at_least("at-least", self.at_least, 0.0)
        require_at_least("margin", self.margin, 0.0, below=math.nextafter(100.0, math.inf))

    def read(self, manifest: Manifest) -> DataSet:
        """Read the samples; raise InvalidInput if there are none."""
        samples = self.data.read(manifest.input, manifest.target)
        samples.require_samples()
        return samples

    def passes(self, score: Score, served: Score | None) -> bool:
        """Compare a score with the served version's; None if no version is served."""
        reached = round(100 * score.value, 9) if score.metric.share else score.value
        if self.at_least and not (reached >= self.at_least if score.metric.maximise else reached <= self.at_least):
            return False
        return served is None or score.drop_from(served) <= self.margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on one round's model."""

    round: int
    metric: str
    score: float  # by the metric
    served: int | None  # the version it was compared with
    served_score: float | None
    published: bool
    removed: tuple[int, ...] = ()  # versions deleted to limit their number


class ReleaseFollower:
    """A follower of one run that publishes into one model's directory."""

    def __init__(
        self,
        runs: CoordinatorClient,
        run: str,
        directory: ModelDirectory,
        gate: FollowGate,
        *,
        on_decision: Callable[[Decision], None],
        kept: int = KEPT,
        key: Path | None = None,
        verify_keys: Sequence[ReleaseKey] = (),
    ) -> None:
        """`verify_keys`: if any are given, one of them must have signed the served version and its configuration."""
        if kept < 2:
            raise InvalidInput(field="keep", value=kept, allowed="at least 2, so that rolling back is possible")
        self._runs = runs
        self._run = run
        self._directory = directory
        self._gate = gate
        self._on_decision = on_decision
        self._kept = kept
        self._key = key
        self._verify_keys = verify_keys
        self._judged = 0  # the newest round that was judged

    def catch_up(self) -> bool:
        """Publish the newest round above all versions that passes the gate; return False once the run has ended."""
        run = self._runs.run(self._run)
        manifest = self._runs.manifest(run)
        samples = self._gate.read(manifest)
        newest = max(self._directory.versions(), default=0)
        models = global_models(run, self._runs.rounds(self._run))
        rounds = [model.round for model in models if model.round > max(newest, self._judged)]
        for number in reversed(rounds):
            if (checked := self._checked_unless_deleted(number)) and self._judge(checked, samples):
                break
        self._judged = max([self._judged, *rounds])
        return run.active

    def _checked_unless_deleted(self, number: int) -> CheckedModel | None:
        """Check a round's model; return None if the coordinator has deleted it meanwhile."""
        try:
            return check_model(self._runs, self._run, self._gate.data, round_number=number)
        except NotFound:
            run = self._runs.run(self._run)
            models = global_models(run, self._runs.rounds(self._run))
            if number in [model.round for model in models]:
                raise
            return None

    def _judge(self, checked: CheckedModel, samples: DataSet) -> bool:
        decision = self._decide(checked, samples)
        self._on_decision(decision)
        return decision.published

    def _decide(self, checked: CheckedModel, samples: DataSet) -> Decision:
        served = max(self._directory.served(), default=None) if self._directory.versions() else None
        task = checked.manifest.task.name
        score = Predictor(checked.graph).score(samples, task)
        found = Predictor(self._served_graph(served, checked.manifest)).score(samples, task) if served else None
        passed = self._gate.passes(score, found)
        removed = self._publish(checked) if passed else []
        return Decision(
            round=checked.round,
            metric=score.metric.name,
            score=score.value,
            served=served,
            served_score=None if found is None else found.value,
            published=passed,
            removed=tuple(removed),
        )

    def _publish(self, checked: CheckedModel) -> list[int]:
        publish(
            self._directory,
            candidate_of_run(self._runs, checked),
            version=checked.round,
            data=self._gate.data,
            key=self._key,
            serve_newest=True,
        )
        return self._directory.prune(self._kept)

    def _served_graph(self, version: int, manifest: Manifest) -> bytes:
        if self._verify_keys:
            graph = self._directory.require_verified(version, self._verify_keys)[MODEL_FILE]
        else:
            graph = self._directory.model(version)
        where = f"version {version} in {self._directory.path}"
        metadata = read_metadata(graph, where)
        target = target_spec(metadata, where).unscaled
        if input_spec(metadata, where) != manifest.input or target != manifest.target.unscaled:
            raise InvalidInput(
                f"{where} has other inputs or classes than run {self._run!r}; choose another --name",
                field="inputs or classes",
                value=where,
            )
        return graph
