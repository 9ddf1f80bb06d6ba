"""The inference protocol on gRPC: every method converts, calls the models, and converts back.

Which threads a call takes is decided here, so that nobody waits for the wrong thing: inference has the server's default
workers to itself; a stream keeps a thread for as long as it is open; questions of health wait for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from tritonclient.grpc import service_pb2, service_pb2_grpc

from moonfed.errors import MoonfedError, Overloaded
from moonfed.serving import grpc_codec
from moonfed.serving.model_manager import ModelManager
from moonfed.serving.status_codes import status_of
from moonfed.serving.worker_threads import Workers
from moonfed.version import RELEASE

NAME = "moonfed"
EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "statistics",
    "binary_tensor_data",
)
SERVICE = "inference.GRPCInferenceService"
MAX_STREAMS = 64
_MAX_DETAILS = 2000  # characters; a status travels in a header
_ABSENT = {
    "shared memory": [
        f"{kind}SharedMemory{action}" for kind in ("System", "Cuda") for action in ("Status", "Register", "Unregister")
    ],
    "tracing": ["TraceSetting"],
    "changing its log's settings": ["LogSettings"],
}
Message = Any  # the stubs have no types
Method = Callable[[Message, grpc.ServicerContext], Message]


class ThreadPools:
    """Threads for what is no unary inference."""

    def __init__(self) -> None:
        self.health = ThreadPoolExecutor(4, thread_name_prefix="health")
        self.control = ThreadPoolExecutor(4, thread_name_prefix="control")
        self.refusals = ThreadPoolExecutor(4, thread_name_prefix="refusal")
        self.streams = _Counted(MAX_STREAMS, thread_name_prefix="stream")


class InferenceService(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The Open Inference Protocol with Triton's extensions, over the models of a repository."""

    def __init__(self, models: ModelManager, workers: Workers, pools: ThreadPools) -> None:
        self._models, self._workers = models, workers
        self.ModelInfer = _answered(self._infer)
        self.ModelStreamInfer = _on(pools.streams, self._stream)
        for name, asked in (
            ("ServerLive", self._live),
            ("ServerReady", self._ready),
            ("ModelReady", self._model_ready),
        ):
            setattr(self, name, _on(pools.health, _answered(asked)))
        for name, asked in (
            ("ServerMetadata", self._server_metadata),
            ("ModelMetadata", self._model_metadata),
            ("ModelConfig", self._model_config),
            ("ModelStatistics", self._model_statistics),
            ("RepositoryIndex", self._index),
            ("RepositoryModelLoad", self._load),
            ("RepositoryModelUnload", self._unload),
        ):
            setattr(self, name, _on(pools.control, _answered(asked)))
        for what, names in _ABSENT.items():
            for name in names:
                setattr(self, name, _on(pools.control, _absent(what)))

    def _infer(self, request: Message) -> Message:
        return grpc_codec.infer_response(self._models.infer(grpc_codec.infer_request(request)))

    def _stream(self, requests: Iterable[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Answers a stream's requests in order; one that fails is told, and the stream goes on."""
        for request in requests:
            yield self._answer_in_stream(request)

    def _answer_in_stream(self, request: Message) -> Message:
        try:
            with self._workers.elsewhere():
                return grpc_codec.stream_response(self._models.infer(grpc_codec.infer_request(request)))
        except Exception as error:
            return grpc_codec.stream_error(status_of(error)[2], request)

    def _live(self, _: Message) -> Message:
        return service_pb2.ServerLiveResponse(live=self._models.live())

    def _ready(self, _: Message) -> Message:
        return service_pb2.ServerReadyResponse(ready=self._workers.accepting and self._models.ready())

    def _model_ready(self, request: Message) -> Message:
        ready = self._workers.accepting and self._models.is_ready(request.name, request.version)
        return service_pb2.ModelReadyResponse(ready=ready)

    def _server_metadata(self, _: Message) -> Message:
        return grpc_codec.server_metadata(NAME, RELEASE, EXTENSIONS)

    def _model_metadata(self, request: Message) -> Message:
        return grpc_codec.model_metadata(self._models.metadata(request.name, request.version))

    def _model_config(self, request: Message) -> Message:
        return service_pb2.ModelConfigResponse(config=self._models.config(request.name, request.version))

    def _model_statistics(self, request: Message) -> Message:
        return grpc_codec.model_statistics(self._models.statistics(request.name, request.version))

    def _index(self, request: Message) -> Message:
        _refuse_repository(request)
        return grpc_codec.repository_index(self._models.index(ready_only=request.ready))

    def _load(self, request: Message) -> Message:
        _refuse_repository(request)
        if request.parameters:
            raise _Unsupported("load parameters are not supported: a model is loaded as it lies in the repository")
        self._models.load(request.model_name)
        return service_pb2.RepositoryModelLoadResponse()

    def _unload(self, request: Message) -> Message:
        _refuse_repository(request)
        self._models.unload(request.model_name)
        return service_pb2.RepositoryModelUnloadResponse()


class HealthService(health.HealthServicer):
    """grpc.health.v1: the server, and the service of this module, serve as soon as `ready` says so."""

    def __init__(self, ready: Callable[[], bool], pools: ThreadPools) -> None:
        super().__init__(experimental_non_blocking=True, experimental_thread_pool=pools.health)
        self._is_ready = ready
        self._look = self.Check
        setattr(self, "Check", _on(pools.health, self._check))  # noqa: B010 - mypy knows no other way
        self.refresh()

    def refresh(self) -> None:
        """Looks again, and tells those who watch."""
        status = health_pb2.HealthCheckResponse
        for name in ("", SERVICE):
            self.set(name, status.SERVING if self._is_ready() else status.NOT_SERVING)

    def _check(self, request: Message, context: grpc.ServicerContext) -> Message:
        self.refresh()
        return self._look(request, context)


class AdmissionInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in its types only
    """Refuses inference and streams beyond what is taken at once, before they wait for a thread."""

    def __init__(self, workers: Workers, pools: ThreadPools) -> None:
        self._workers, self._pools = workers, pools

    def intercept_service(self, continuation: Callable[..., Any], handler_call_details: Message) -> Message:
        """The method's handler, or one that refuses."""
        method = handler_call_details.method
        if method == f"/{SERVICE}/ModelInfer":
            return self._unless_refused(continuation, handler_call_details, self._workers.check)
        if method == f"/{SERVICE}/ModelStreamInfer":
            return self._unless_refused(continuation, handler_call_details, self._check_streams)
        return continuation(handler_call_details)

    def _check_streams(self) -> None:
        self._workers.check()
        if self._pools.streams.count >= MAX_STREAMS:
            raise Overloaded(f"Server is busy with {MAX_STREAMS} streams, as many as it takes at once")

    def _unless_refused(self, continuation: Callable[..., Any], details: Message, check: Callable[[], None]) -> Message:
        try:
            check()
        except MoonfedError as error:
            code, _, sentence = status_of(error)
            refuse = _on(self._pools.refusals, lambda _request, context: context.abort(code, sentence))
            if details.method.endswith("/ModelStreamInfer"):
                return grpc.stream_stream_rpc_method_handler(refuse)
            return grpc.unary_unary_rpc_method_handler(refuse)
        return continuation(details)


class _Unsupported(Exception):
    """What Triton offers and this server does not."""


class _Counted(ThreadPoolExecutor):
    """Knows how many of its calls have not ended."""

    def __init__(self, threads: int, *, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix=thread_name_prefix)
        self.count = 0
        self._counting = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        self._change(1)
        future = super().submit(function, *arguments, **named)
        future.add_done_callback(lambda _: self._change(-1))
        return future

    def _change(self, by: int) -> None:
        with self._counting:
            self.count += by


def _on(pool: ThreadPoolExecutor, method: Method) -> Method:
    """The method on threads of its own; gRPC looks for this attribute."""

    def call(request: Message, context: grpc.ServicerContext) -> Message:
        return method(request, context)

    call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    return call


def _answered(method: Callable[[Any], Any]) -> Method:
    """The method with its errors as gRPC's statuses."""

    def call(request: Message, context: grpc.ServicerContext) -> Message:
        try:
            return method(request)
        except _Unsupported as error:
            code, sentence = grpc.StatusCode.UNIMPLEMENTED, str(error)
        except Exception as error:
            code, _, sentence = status_of(error)
        return context.abort(code, sentence[:_MAX_DETAILS])

    return call


def _absent(what: str) -> Method:
    sentence = f"{what} is not supported by this server"
    return lambda _request, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, sentence)


def _refuse_repository(request: Message) -> None:
    if request.repository_name:
        raise _Unsupported("'repository_name' specification is not supported")
