"""The facts about a released model: from its file, from its run, and from evaluation data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.bundle.manifest import CLASSIFICATION, InputSpec, Manifest, read_input
from moonfed.bundle.target import NO_TARGET, Kind, TargetSpec, read_target
from moonfed.client import DeviceEvaluation, Run
from moonfed.control.held_out_score import ClassScore, HeldOutScore
from moonfed.control.privacy import PrivacySpent
from moonfed.data.data_set import DataSet
from moonfed.data.source import IF_PRESENT, Source
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.export.scoring import Predictor, Score
from moonfed.release.pictures import Picture
from moonfed.release.quality import ResultTable, details_of
from moonfed.release.triton_config import GraphInterface


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A global model of the run on its learning curve."""

    round: int  # 0: the run's initial weights
    devices: tuple[str, ...]  # whose updates were aggregated
    score: float | None  # from an evaluator, by the manifest's metric; None: never scored
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingHistory:
    """The training history of the model."""

    manifest: Manifest
    curve: tuple[CurvePoint, ...]  # up to the model's round
    max_abs_diff: float  # between an output of the graph and the plan's
    scores: tuple[HeldOutScore, ...] = ()  # that evaluators have recorded of the model, by test set
    on_devices: DeviceResults | None = None  # None: devices have not evaluated the model
    privacy: PrivacySpent | None = None  # of the whole run; None: without differential privacy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResults:
    """The distribution of the model's score over devices' holdouts, by the manifest's metric."""

    devices: int
    median: float
    worst_decile: float  # mean over the tenth of the devices with the worst scores
    compared: int  # devices with a model of their own
    worse: int  # of those, devices on which this model is worse than their own
    others: int  # devices that declined or did not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResults:
    """The results of the model on some data."""

    samples: int
    data_sha256: str
    score: Score
    kind: Kind = "class"  # of the target
    classes: tuple[ClassScore, ...] = ()
    table: ResultTable | None = None  # that suits the task
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """All known facts about the model."""

    name: str
    version: int
    sha256: str  # of model.onnx
    size: int  # bytes
    interface: GraphInterface
    metadata: Mapping[str, str]  # the file's own
    history: TrainingHistory | None = None  # None: released from a file
    results: EvaluationResults | None = None  # None: not evaluated

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names in the order of the probabilities; empty if the file has none."""
        return target_spec(self.metadata, "the model").names

    @property
    def pictures(self) -> dict[str, bytes]:
        """The files that the model card shows, by name."""
        return {picture.name: picture.content for picture in self.results.pictures} if self.results else {}

    @property
    def labelled(self) -> bool:
        """True if the output has a probability for each of the classes or labels."""
        return target_spec(self.metadata, "the model").kind in ("class", "labels")


def target_spec(metadata: Mapping[str, str], where: str) -> TargetSpec:
    """Read what the model predicts from a file's metadata; `NO_TARGET` if it does not say."""
    return read_target(metadata["target"], where) if "target" in metadata else NO_TARGET


def input_spec(metadata: Mapping[str, str], where: str) -> InputSpec:
    """Read the kind and shape of a raw sample from metadata; raise InvalidInput for a file that is not moonfed's."""
    return read_input(metadata.get("input", "{}"), where)


def read_curve(runs: CoordinatorClient, run: Run, last: int) -> tuple[CurvePoint, ...]:
    """Read the run's learning curve: the initial weights and the committed rounds up to `last`."""
    committed = [entry for entry in runs.rounds(run.run) if entry.status == "committed" and entry.round <= last]
    metric = run.metric.name
    return (
        _point(0, (), run.initial_metrics, metric),
        *(_point(entry.round, tuple(sorted(entry.counted)), entry.metrics, metric) for entry in committed),
    )


def read_evaluations(
    runs: CoordinatorClient, run: str, round_number: int
) -> tuple[tuple[HeldOutScore, ...], DeviceResults | None]:
    """Read what evaluators and devices have recorded of a global model; evaluations under way do not count."""
    found = [entry for entry in runs.evaluations(run) if entry.round == round_number]
    scores = tuple(entry.score for entry in found if entry.score)
    ended = [entry.on_devices for entry in found if entry.on_devices and entry.on_devices.closed]
    return scores, _device_results(ended[0]) if ended else None


def _device_results(found: DeviceEvaluation) -> DeviceResults | None:
    if found.median is None or found.worst_decile is None:
        return None
    return DeviceResults(
        devices=len(found.scores),
        median=found.median,
        worst_decile=found.worst_decile,
        compared=found.compared,
        worse=found.worse,
        others=len(found.waiting) + sum(len(group.devices) for group in found.skipped),
    )


def evaluate_on(graph: bytes, metadata: Mapping[str, str], data: Source) -> EvaluationResults | None:
    """Read samples and evaluate the model on them; return None if they have no targets."""
    target = target_spec(metadata, "the model")
    samples = data.read(input_spec(metadata, "the model"), target, labels=IF_PRESENT)
    known = samples.targets is not None or (target.is_input and "target" in metadata)
    return evaluate(graph, metadata, samples) if known else None


def evaluate(graph: bytes, metadata: Mapping[str, str], samples: DataSet) -> EvaluationResults:
    """Evaluate the model on samples with targets; raise InvalidInput if there are none."""
    samples.require_samples()
    limit = metadata.get("threshold")
    details = details_of(samples, float(limit) if limit else None)
    score = Predictor(graph).score(samples, metadata.get("task", CLASSIFICATION.name), details.add)
    return EvaluationResults(
        samples=len(samples),
        data_sha256=samples.sha256(),
        score=score,
        kind=samples.target.kind,
        classes=details.classes(),
        table=details.table(),
        pictures=details.pictures(),
    )


def _point(number: int, devices: tuple[str, ...], metrics: Mapping[str, float], metric: str) -> CurvePoint:
    return CurvePoint(round=number, devices=devices, score=metrics.get(metric), loss=metrics.get("loss"))
