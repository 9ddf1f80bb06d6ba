"""One version of a model that is loaded: it checks requests, runs them, alone or in batches, and counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from moonfed.errors import InvalidInput, MoonfedError, Overloaded, Unavailable
from moonfed.serving.batching import Batcher, BatchOutputs, BatchPolicy, Feeds, QueuedRequest
from moonfed.serving.classification import Labels, read_labels, top_classes
from moonfed.serving.inference_request import Array, InferRequest, InferResponse, TensorMetadata
from moonfed.serving.instance_groups import complete_groups, open_sessions
from moonfed.serving.model_config import MODEL_FILE, Config, complete_config
from moonfed.serving.model_signature import ModelSignature
from moonfed.serving.onnx_session import OnnxSession, SessionSettings, run
from moonfed.serving.statistics import ExecutedRequest, StatisticsRecorder, VersionStatistics
from moonfed.serving.tensor_codec import request_prefix
from moonfed.serving.warm_up import warm_up

_US, _clock = 1000, time.monotonic_ns


class ModelVersion:
    """A loaded version. Whoever holds one can use it, also after another has taken its place."""

    def __init__(
        self, version: int, config: Config, sessions: Sequence[OnnxSession], labels: Mapping[str, Labels]
    ) -> None:
        self.version = str(version)
        self.config = config
        self.signature = ModelSignature(config)
        self._sessions = sessions
        self._labels = labels
        self._counter = StatisticsRecorder()
        self._under_way = _UnderWay()
        self._idle: SimpleQueue[OnnxSession] = SimpleQueue()
        for session in sessions:
            self._idle.put(session)
        self._batcher: Batcher | None = None
        if config.HasField("dynamic_batching"):
            self._batcher = Batcher(batch_policy(config), len(sessions), self._run_batch)

    @property
    def inputs(self) -> tuple[TensorMetadata, ...]:
        """What it takes."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[TensorMetadata, ...]:
        """What it gives."""
        return self.signature.outputs

    def infer(self, request: InferRequest) -> InferResponse:
        """Answers a request; raises what `Models.infer` raises, except for NotFound."""
        begun = _clock()
        self._under_way.enter()
        try:
            samples = self.signature.samples(request)
            names = self.signature.names(request)
            if self._batcher is None:
                found = self._run_alone(request.inputs, names, samples, begun)
            else:
                found = self._batcher.infer(request.inputs, names, samples, begun, request.timeout_us * _US)
            outputs = self._classified(request, found) if request.outputs else found
        except MoonfedError as error:
            self._counter.failed(_reason(error), _clock() - begun)
            raise self._about(request, error) from None
        finally:
            self._under_way.leave()
        return InferResponse(model=request.model, version=self.version, id=request.id, outputs=outputs)

    def statistics(self) -> VersionStatistics:
        """What it counted."""
        return self._counter.snapshot(self.signature.model, self.version, self._pending())

    def hurry(self) -> None:
        """Another one has taken its place, or none: those who wait for a batch to fill wait no longer."""
        if self._batcher is not None:
            self._batcher.hurry()

    def busy(self) -> bool:
        """Whether requests are under way."""
        return self._under_way.count > 0

    def wait_until_idle(self) -> None:
        """Returns when no request is under way."""
        self._under_way.wait_until_none()

    def _pending(self) -> int:
        if self._batcher is not None:
            return self._batcher.waiting()
        return max(0, self._under_way.count - (len(self._sessions) - self._idle.qsize()))

    def _run_alone(self, feeds: Feeds, names: tuple[str, ...], samples: int, begun: int) -> Mapping[str, Array]:
        session = self._idle.get()
        try:
            return self._run(session, feeds, names, samples, begun)
        finally:
            self._idle.put(session)

    def _run(
        self, session: OnnxSession, feeds: Feeds, names: tuple[str, ...], samples: int, begun: int
    ) -> Mapping[str, Array]:
        started = _clock()
        found = run(session, names, feeds)
        ended = _clock()
        self._counter.executed((ExecutedRequest(samples, begun, started),), (started, started, ended, ended))
        return dict(zip(names, found, strict=True))

    def _run_batch(self, instance: int, batch: Sequence[QueuedRequest]) -> BatchOutputs:
        if len(batch) == 1:
            (one,) = batch
            return [self._run(self._sessions[instance], one.feeds, one.names, one.samples, one.begun_ns)]
        started = _clock()
        wanted = {name for each in batch for name in each.names}
        names = tuple(name for name in self.signature.output_names if name in wanted)
        feeds = _joined([each.feeds for each in batch])
        fed = _clock()
        found = dict(zip(names, run(self._sessions[instance], names, feeds), strict=True))
        inferred = _clock()
        answers = _split(found, [(each.samples, each.names) for each in batch])
        asked = [ExecutedRequest(each.samples, each.begun_ns, started) for each in batch]
        self._counter.executed(asked, (started, fed, inferred, _clock()))
        return answers

    def _classified(self, request: InferRequest, found: Mapping[str, Array]) -> Mapping[str, Array]:
        batched = self.signature.max_batch_size > 0
        return {
            each.name: top_classes(found[each.name], each.class_count, self._labels.get(each.name, ()), batched=batched)
            if each.class_count
            else found[each.name]
            for each in request.outputs
        }

    def _about(self, request: InferRequest, error: MoonfedError) -> MoonfedError:
        """The batcher knows no request's id, with which Triton's sentence about a full queue begins."""
        return type(error)(request_prefix(request.id) + str(error)) if isinstance(error, Overloaded) else error


def load_version(directory: Path, version: int, written: Config, settings: SessionSettings) -> ModelVersion:
    """Loads a version and warms it up; raises MoonfedError with what kept it from that."""
    config = type(written)()
    config.CopyFrom(written)
    config.name = directory.name
    path = directory / str(version) / (config.default_model_filename or MODEL_FILE)
    if not path.is_file():
        raise InvalidInput(f"version {version} of model '{directory.name}' has no file {path.name}")
    complete_groups(config, settings)
    sessions = open_sessions(path, config, settings)
    config = complete_config(config, directory.name, sessions[0].inputs, sessions[0].outputs)
    labels = {each.name: read_labels(directory / each.label_filename) for each in config.output if each.label_filename}
    for session in dict.fromkeys(sessions):
        warm_up(session, config, directory)
    return ModelVersion(version, config, sessions, labels)


def batch_policy(config: Config) -> BatchPolicy:
    """The policy of a config's dynamic_batching."""
    batching = config.dynamic_batching
    queue = batching.default_queue_policy
    return BatchPolicy(
        max_batch_size=config.max_batch_size,
        preferred=frozenset(batching.preferred_batch_size),
        max_delay_ns=batching.max_queue_delay_microseconds * _US,
        max_queue_size=queue.max_queue_size,
        default_timeout_ns=queue.default_timeout_microseconds * _US,
        allow_timeout_override=queue.allow_timeout_override,
    )


def _joined(feeds: Sequence[Feeds]) -> Feeds:
    return {name: np.concatenate([each[name] for each in feeds]) for name in feeds[0]}


def _split(found: Mapping[str, Array], asked: Sequence[tuple[int, tuple[str, ...]]]) -> BatchOutputs:
    """Views of the rows of each request, which has so many samples and wants these outputs.

    Raises MoonfedError if an output does not have a row for each sample.
    """
    total = sum(samples for samples, _ in asked)
    for name, array in found.items():
        if array.ndim == 0 or len(array) != total:
            raise MoonfedError(f"output '{name}' has shape {list(array.shape)} for a batch of {total}")
    answers: BatchOutputs = []
    start = 0
    for samples, names in asked:
        answers.append({name: found[name][start : start + samples] for name in names})
        start += samples
    return answers


def _reason(error: MoonfedError) -> str:
    """Triton's reasons of failure."""
    if isinstance(error, Unavailable):
        return "REJECTED"
    return "OTHER" if isinstance(error, InvalidInput) else "BACKEND"


class _UnderWay:
    """How many requests are under way."""

    def __init__(self) -> None:
        self.count = 0
        self._awaited = False
        self._lock = threading.Lock()
        self._none = threading.Condition(self._lock)

    def enter(self) -> None:
        with self._lock:
            self.count += 1

    def leave(self) -> None:
        with self._lock:
            self.count -= 1
            if not self.count and self._awaited:
                self._none.notify_all()

    def wait_until_none(self) -> None:
        with self._none:
            self._awaited = True
            self._none.wait_for(lambda: not self.count)
