"""Keeps a served repository at a run's newest round that passes the gate, and goes back on request.

The repository itself is all the memory there is. A round that is not above the newest version is never looked at, so a
version that was rolled back stays there, unserved, and does not come back by itself; a later round may take over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import InvalidInput, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient, global_models
from moonfed.export.model_file import CheckedModel, check_model
from moonfed.export.scoring import Predictor
from moonfed.manifest import Manifest
from moonfed.release.model_facts import class_names, input_spec
from moonfed.release.publish import candidate_of_run, publish
from moonfed.release.repository import ModelDirectory
from moonfed.samples import RawSamples, read_npz
from moonfed.v1 import control_pb2

MARGIN = 0.5  # points of top-1 accuracy
KEPT = 5  # versions


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyGate:
    """What a round's model has to pass: on the data, top-1 at most the margin below the version that is served."""

    data: Path  # .npz of inputs and labels
    margin: float = MARGIN  # points: hundredths of the samples

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 100:
            raise InvalidInput(f"margin is {self.margin}; it must be points of accuracy, 0 to 100")

    def read(self, manifest: Manifest) -> RawSamples:
        """The samples; raises InvalidInput if there are none."""
        samples = read_npz(self.data, manifest.input, manifest.classes)
        if len(samples) == 0:
            raise InvalidInput(f"{self.data} holds no samples; at least one is needed")
        return samples

    def passes(self, right: int, served_right: int | None, samples: int) -> bool:
        """Whether so many right answers are enough, where the version served gives so many; None: none is served."""
        return served_right is None or 100 * (served_right - right) <= self.margin * samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one round's model."""

    round: int
    accuracy: float  # 0 to 1
    served: int | None  # the version it was compared with
    served_accuracy: float | None
    published: bool
    removed: tuple[int, ...] = ()  # versions that made room


class RunFollower:
    """Follows one run into one model's directory."""

    def __init__(
        self,
        runs: CoordinatorClient,
        run: str,
        directory: ModelDirectory,
        gate: AccuracyGate,
        *,
        decided: Callable[[Decision], None],
        kept: int = KEPT,
        key: Path | None = None,
    ) -> None:
        if kept < 2:
            raise InvalidInput(f"keep is {kept}; it must be at least 2, or there is nothing to go back to")
        self._runs, self._run, self._directory, self._gate = runs, run, directory, gate
        self._decided, self._kept, self._key = decided, kept, key
        self._seen = 0  # the newest round that was judged

    def catch_up(self) -> bool:
        """Publishes the newest round above all versions that passes the gate; returns whether the run goes on."""
        run = self._runs.get(self._run)
        manifest = self._runs.manifest(run)
        samples = self._gate.read(manifest)
        newest = max(self._directory.versions(), default=0)
        models = global_models(run, self._runs.rounds(self._run), manifest)
        rounds = [model.round for model in models if model.round > max(newest, self._seen)]
        for number in reversed(rounds):
            if (checked := self._checked_unless_deleted(number)) and self._judge(checked, samples):
                break
        self._seen = max([self._seen, *rounds])
        return run.status == control_pb2.RUN_STATUS_RUNNING

    def _checked_unless_deleted(self, number: int) -> CheckedModel | None:
        """The coordinator may delete a model while we are on our way to it."""
        try:
            return check_model(self._runs, self._run, self._gate.data, round_number=number)
        except NotFound:
            run = self._runs.get(self._run)
            models = global_models(run, self._runs.rounds(self._run), self._runs.manifest(run))
            if number in [model.round for model in models]:
                raise
            return None

    def _judge(self, checked: CheckedModel, samples: RawSamples) -> bool:
        decision = self._decide(checked, samples)
        self._decided(decision)
        return decision.published

    def _decide(self, checked: CheckedModel, samples: RawSamples) -> Decision:
        served = max(self._directory.served(), default=None) if self._directory.versions() else None
        right = _right(checked.graph, samples)
        served_right = _right(self._served_graph(served, checked.manifest), samples) if served else None
        passed = self._gate.passes(right, served_right, len(samples))
        removed = self._publish(checked) if passed else []
        return Decision(
            round=checked.round,
            accuracy=right / len(samples),
            served=served,
            served_accuracy=None if served_right is None else served_right / len(samples),
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
            take_over=True,
        )
        return self._directory.keep_newest(self._kept)

    def _served_graph(self, version: int, manifest: Manifest) -> bytes:
        graph = self._directory.model(version)
        where = f"version {version} in {self._directory.path}"
        metadata = read_metadata(graph, where)
        if input_spec(metadata, where) != manifest.input or class_names(metadata) != manifest.classes:
            raise InvalidInput(f"{where} has other inputs or classes than run {self._run!r}; choose another --name")
        return graph


def _right(graph: bytes, samples: RawSamples) -> int:
    """How many samples get their own label as the most probable one."""
    return round(Predictor(graph).score(samples.inputs, samples.labels).accuracy * len(samples))
