"""A loaded version of a model: it checks requests, runs them alone or in batches, and records statistics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from queue import SimpleQueue

import numpy as np

from moonfed.errors import InvalidInput, MoonfedError, Overloaded, Unavailable
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models.batch_probe import batching_problem
from moonfed.serving.models.batching import Batcher, BatchOutputs, BatchPolicy, Feeds, QueuedRequest
from moonfed.serving.models.classification import Labels, outputs_without_classes, parse_labels, top_classes
from moonfed.serving.models.config import MODEL_FILE, Config, WrittenConfig, complete_config
from moonfed.serving.models.inference_request import Array, InferRequest, InferResponse, TensorMetadata
from moonfed.serving.models.instance_groups import complete_groups, open_sessions
from moonfed.serving.models.onnx_session import OnnxSession, run_session
from moonfed.serving.models.signature import ModelSignature
from moonfed.serving.models.statistics import ExecutedRequest, StatisticsRecorder, VersionStatistics
from moonfed.serving.models.tensor_codec import request_prefix
from moonfed.serving.models.version_files import VersionFiles
from moonfed.serving.models.warm_up import warm_up

_US, _clock = 1000, time.monotonic_ns
_log = logging.getLogger(__name__)


class ModelVersion:
    """A loaded version, usable by its callers even after another has replaced it."""

    def __init__(
        self, version: int, config: Config, sessions: Sequence[OnnxSession], labels: Mapping[str, Labels]
    ) -> None:
        self.version = str(version)
        self.config = config
        self.signature = ModelSignature(config)
        self._sessions = sessions
        self._labels = labels
        self._without_classes = outputs_without_classes(config)
        self._statistics = StatisticsRecorder()
        self._in_flight = _InFlight()
        self._idle: SimpleQueue[OnnxSession] = SimpleQueue()
        for session in sessions:
            self._idle.put(session)
        self._batcher: Batcher | None = None
        if config.HasField("dynamic_batching"):
            self._batcher = Batcher(batch_policy(config), len(sessions), self._run_batch)

    @property
    def inputs(self) -> tuple[TensorMetadata, ...]:
        """The inputs."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[TensorMetadata, ...]:
        """The outputs."""
        return self.signature.outputs

    def infer(self, request: InferRequest) -> InferResponse:
        """Answer a request; raise what `ModelManager.infer` raises, except NotFound."""
        arrived = _clock()
        self._in_flight.enter()
        try:
            samples = self.signature.samples(request)
            names = self.signature.names(request)
            self._require_classes(request)
            if self._batcher is None:
                found = self._run_alone(request.inputs, names, samples, arrived)
            else:
                found = self._batcher.infer(request.inputs, names, samples, arrived, request.timeout_us * _US)
            outputs = self._classified(request, found) if request.outputs else found
        except MoonfedError as error:
            self._statistics.record_failure(_reason(error), _clock() - arrived)
            raise _with_request_id(request, error) from None
        finally:
            self._in_flight.leave()
        return InferResponse(model=request.model, version=self.version, id=request.id, outputs=outputs)

    def statistics(self) -> VersionStatistics:
        """Return the statistics since loading."""
        return self._statistics.snapshot(self.signature.model, self.version, self._pending())

    def flush(self) -> None:
        """Stop waiting for batches to fill, since this version gets no more requests."""
        if self._batcher is not None:
            self._batcher.flush()

    def busy(self) -> bool:
        """Return whether requests are in flight."""
        return self._in_flight.count > 0

    def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        self._in_flight.wait_until_none()

    def _pending(self) -> int:
        if self._batcher is not None:
            return self._batcher.queued()
        return max(0, self._in_flight.count - (len(self._sessions) - self._idle.qsize()))

    def _run_alone(self, feeds: Feeds, names: tuple[str, ...], samples: int, arrived: int) -> Mapping[str, Array]:
        session = self._idle.get()
        try:
            return self._run(session, feeds, names, samples, arrived)
        finally:
            self._idle.put(session)

    def _run(
        self, session: OnnxSession, feeds: Feeds, names: tuple[str, ...], samples: int, arrived: int
    ) -> Mapping[str, Array]:
        started = _clock()
        found = run_session(session, names, feeds)
        ended = _clock()
        self._statistics.record_execution(
            (ExecutedRequest(samples, arrived, started),), (started, started, ended, ended)
        )
        return dict(zip(names, found, strict=True))

    def _run_batch(self, instance: int, batch: Sequence[QueuedRequest]) -> BatchOutputs:
        if len(batch) == 1:
            (one,) = batch
            return [self._run(self._sessions[instance], one.feeds, one.names, one.samples, one.arrived_ns)]
        started = _clock()
        wanted = {name for each in batch for name in each.names}
        names = tuple(name for name in self.signature.output_names if name in wanted)
        feeds = _concatenated([each.feeds for each in batch])
        fed = _clock()
        found = dict(zip(names, run_session(self._sessions[instance], names, feeds), strict=True))
        inferred = _clock()
        outputs = _split(found, [(each.samples, each.names) for each in batch])
        requests = [ExecutedRequest(each.samples, each.arrived_ns, started) for each in batch]
        self._statistics.record_execution(requests, (started, fed, inferred, _clock()))
        return outputs

    def _require_classes(self, request: InferRequest) -> None:
        for each in request.outputs:
            if each.class_count and each.name in self._without_classes:
                raise InvalidInput(
                    f"class result not available for output '{each.name}' of model '{self.signature.model}', "
                    "whose values are not the probabilities of classes",
                    field="classification",
                    value=each.class_count,
                )

    def _classified(self, request: InferRequest, found: Mapping[str, Array]) -> Mapping[str, Array]:
        batched = self.signature.max_batch_size > 0
        return {
            each.name: top_classes(found[each.name], each.class_count, self._labels.get(each.name, ()), batched=batched)
            if each.class_count
            else found[each.name]
            for each in request.outputs
        }


def load_version(source: VersionFiles, written: WrittenConfig, settings: SessionSettings) -> ModelVersion:
    """Load a version and warm it up; raise MoonfedError if that fails.

    A model that its config does not say to batch is batched only if that changes no answer.
    """
    name, version = source.model, source.version
    config = type(written.message)()
    config.CopyFrom(written.message)
    config.name = name
    graph = source.graph(config.default_model_filename or MODEL_FILE)
    complete_groups(config, settings)
    sessions = open_sessions(graph, config, settings)
    del graph  # which the sessions hold in their own form
    config = _completed(config, written, sessions[0])
    labels = {
        each.name: parse_labels(source.labels(each.label_filename), each.label_filename)
        for each in config.output
        if each.label_filename
    }
    for session in dict.fromkeys(sessions):
        warm_up(session, config, source.warm_up_data)
    return ModelVersion(version, config, sessions, labels)


def _completed(config: Config, written: WrittenConfig, session: OnnxSession) -> Config:
    asked = written.never_batched or config.max_batch_size > 0
    completed = complete_config(
        config, config.name, session.inputs, session.outputs, batching=not written.never_batched
    )
    if asked or completed.max_batch_size == 0:
        return completed
    if problem := batching_problem(session):
        _log.info("model %s is not batched: %s", config.name, problem)
        return complete_config(config, config.name, session.inputs, session.outputs, batching=False)
    _log.info("model %s is batched, up to %d requests: its answers are the same", config.name, completed.max_batch_size)
    return completed


def batch_policy(config: Config) -> BatchPolicy:
    """Read the batch policy of a config's dynamic_batching."""
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


def _concatenated(feeds: Sequence[Feeds]) -> Feeds:
    return {name: np.concatenate([each[name] for each in feeds]) for name in feeds[0]}


def _split(found: Mapping[str, Array], requests: Sequence[tuple[int, tuple[str, ...]]]) -> BatchOutputs:
    """Return views of each request's rows, given its number of samples and its outputs.

    Raises MoonfedError if an output does not have a row for each sample.
    """
    total = sum(samples for samples, _ in requests)
    for name, array in found.items():
        if array.ndim == 0 or len(array) != total:
            raise MoonfedError(f"output '{name}' has shape {list(array.shape)} for a batch of {total}")
    outputs: BatchOutputs = []
    start = 0
    for samples, names in requests:
        outputs.append({name: found[name][start : start + samples] for name in names})
        start += samples
    return outputs


def _reason(error: MoonfedError) -> str:
    """Return Triton's name for the reason of a failure."""
    if isinstance(error, Unavailable):
        return "REJECTED"
    return "OTHER" if isinstance(error, InvalidInput) else "BACKEND"


def _with_request_id(request: InferRequest, error: MoonfedError) -> MoonfedError:
    """Prepend the request's id to the message about a full queue, as Triton does; the batcher does not know it."""
    return type(error)(request_prefix(request.id) + str(error)) if isinstance(error, Overloaded) else error


class _InFlight:
    """The number of requests in flight."""

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
