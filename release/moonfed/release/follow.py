"""Following a run: publishing its newest round that passes an accuracy gate.

The repository is the only state. Rounds up to the newest version are never considered, so a version that was rolled
back stays unserved and is not published again; a later round may replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.bundle.manifest import Manifest
from moonfed.data.data_set import DataSet
from moonfed.data.source import Source
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient, global_models
from moonfed.export.scoring import Predictor
from moonfed.models.repository import MODEL_FILE
from moonfed.release.model_facts import input_spec, target_spec
from moonfed.release.model_file import CheckedModel, check_model
from moonfed.release.publish import candidate_of_run, publish
from moonfed.release.repository import ModelDirectory
from moonfed.signing.release_signature import ReleaseKey

MARGIN = 0.5  # points of top-1 accuracy
AT_LEAST = 0.0  # percent of correct answers: any
KEPT = 5  # versions


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyGate:
    """The condition for publishing a round: top-1 on the data at most the margin below the served version's.

    The first version has nothing to be compared with; it needs `at_least`, and so does every later one.
    """

    data: Source
    margin: float = MARGIN  # percentage points
    at_least: float = AT_LEAST  # percent

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= 100:
            raise InvalidInput(
                field="at-least", value=self.at_least, allowed="a percentage of correct answers, 0 to 100"
            )
        if not 0 <= self.margin <= 100:
            raise InvalidInput(field="margin", value=self.margin, allowed="points of accuracy, 0 to 100")

    def read(self, manifest: Manifest) -> DataSet:
        """Read the samples; raise InvalidInput if there are none."""
        samples = self.data.read(manifest.input, manifest.target)
        samples.require_samples()
        return samples

    def passes(self, correct: int, served_correct: int | None, samples: int) -> bool:
        """Compare numbers of correct answers with the served version's; None if no version is served."""
        if 100 * correct < self.at_least * samples:
            return False
        return served_correct is None or 100 * (served_correct - correct) <= self.margin * samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision on one round's model."""

    round: int
    accuracy: float  # 0 to 1
    served: int | None  # the version it was compared with
    served_accuracy: float | None
    published: bool
    removed: tuple[int, ...] = ()  # versions deleted to limit their number


class ReleaseFollower:
    """A follower of one run that publishes into one model's directory."""

    def __init__(
        self,
        runs: CoordinatorClient,
        run: str,
        directory: ModelDirectory,
        gate: AccuracyGate,
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
        correct = _count_correct(checked.graph, samples)
        served_correct = _count_correct(self._served_graph(served, checked.manifest), samples) if served else None
        passed = self._gate.passes(correct, served_correct, len(samples))
        removed = self._publish(checked) if passed else []
        return Decision(
            round=checked.round,
            accuracy=correct / len(samples),
            served=served,
            served_accuracy=None if served_correct is None else served_correct / len(samples),
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
        if input_spec(metadata, where) != manifest.input or target_spec(metadata, where) != manifest.target:
            raise InvalidInput(
                f"{where} has other inputs or classes than run {self._run!r}; choose another --name",
                field="inputs or classes",
                value=where,
            )
        return graph


def _count_correct(graph: bytes, samples: DataSet) -> int:
    """Count the samples whose label is the most probable class."""
    return round(Predictor(graph).score(samples.inputs, samples.labels).accuracy * len(samples))
