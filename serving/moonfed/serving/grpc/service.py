"""The inference protocol on gRPC: every method converts, calls the models, and converts back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from moonfed.serving.grpc import codec, metadata
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.requests.features import EXTENSIONS, LOAD_PARAMETERS, NAME, UnsupportedFeature
from moonfed.serving.requests.status_codes import status_of
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from moonfed.version import RELEASE

SHARED_MEMORY = "shared memory is not supported by this server"
_MAX_DETAILS = 2000  # characters; a status travels in a header
Message = Any  # the stubs have no types
Context = grpc.ServicerContext


def _translate_errors(method: Callable[[Any, Message, Context], Message]) -> Callable[[Any, Message, Context], Message]:
    """Make a method end the call with the gRPC status of whatever it raises."""

    @wraps(method)
    def call(self: Any, request: Message, context: Context) -> Message:
        try:
            return method(self, request, context)
        except Exception as error:
            code, _, message = status_of(error)
        return context.abort(code, message[:_MAX_DETAILS])

    return call


class InferenceService(service_pb2_grpc.GRPCInferenceServiceServicer):
    """The Open Inference Protocol with Triton's extensions, over the models of a repository."""

    def __init__(self, models: ModelManager, inference: ElasticThreadPool) -> None:
        self._models, self._inference = models, inference

    @_translate_errors
    def ModelInfer(self, request: Message, context: Context) -> Message:
        """Answer one inference request."""
        return codec.encode_response(self._models.infer(codec.decode_request(request)))

    def ModelStreamInfer(self, request_iterator: Iterable[Any], context: Context) -> Iterator[Any]:
        """Answer a stream's requests in order; after one that fails, the stream continues."""
        for request in request_iterator:
            yield self._answer_in_stream(request)

    def _answer_in_stream(self, request: Message) -> Message:
        try:
            with self._inference.count_call():
                response = self._models.infer(codec.decode_request(request))
            return codec.encode_stream_response(response)
        except Exception as error:
            return codec.encode_stream_error(status_of(error)[2], request)

    @_translate_errors
    def ServerLive(self, request: Message, context: Context) -> Message:
        """Report whether the server runs."""
        return service_pb2.ServerLiveResponse(live=self._models.live())

    @_translate_errors
    def ServerReady(self, request: Message, context: Context) -> Message:
        """Report whether the server accepts requests."""
        return service_pb2.ServerReadyResponse(ready=self._inference.accepting and self._models.ready())

    @_translate_errors
    def ModelReady(self, request: Message, context: Context) -> Message:
        """Report whether the server accepts requests for one model."""
        ready = self._inference.accepting and self._models.is_ready(request.name, request.version)
        return service_pb2.ModelReadyResponse(ready=ready)

    @_translate_errors
    def ServerMetadata(self, request: Message, context: Context) -> Message:
        """Name the server, its release and its extensions."""
        return metadata.server_metadata(NAME, RELEASE, EXTENSIONS)

    @_translate_errors
    def ModelMetadata(self, request: Message, context: Context) -> Message:
        """Describe a model's inputs and outputs."""
        return metadata.model_metadata(self._models.metadata(request.name, request.version))

    @_translate_errors
    def ModelConfig(self, request: Message, context: Context) -> Message:
        """Return a model's completed configuration."""
        return service_pb2.ModelConfigResponse(config=self._models.config(request.name, request.version))

    @_translate_errors
    def ModelStatistics(self, request: Message, context: Context) -> Message:
        """Return the statistics of one version, of one model or of all."""
        return metadata.model_statistics(self._models.statistics(request.name, request.version))

    @_translate_errors
    def RepositoryIndex(self, request: Message, context: Context) -> Message:
        """List the models of the repository."""
        _reject_repository(request)
        return metadata.repository_index(self._models.index(ready_only=request.ready))

    @_translate_errors
    def RepositoryModelLoad(self, request: Message, context: Context) -> Message:
        """Load a model."""
        _reject_repository(request)
        if request.parameters:
            raise UnsupportedFeature(LOAD_PARAMETERS)
        self._models.load(request.model_name)
        return service_pb2.RepositoryModelLoadResponse()

    @_translate_errors
    def RepositoryModelUnload(self, request: Message, context: Context) -> Message:
        """Unload a model."""
        _reject_repository(request)
        self._models.unload(request.model_name)
        return service_pb2.RepositoryModelUnloadResponse()

    @_translate_errors
    def SystemSharedMemoryStatus(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature(SHARED_MEMORY)

    @_translate_errors
    def SystemSharedMemoryRegister(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature(SHARED_MEMORY)

    @_translate_errors
    def SystemSharedMemoryUnregister(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature(SHARED_MEMORY)

    @_translate_errors
    def CudaSharedMemoryStatus(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature(SHARED_MEMORY)

    @_translate_errors
    def CudaSharedMemoryRegister(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature(SHARED_MEMORY)

    @_translate_errors
    def CudaSharedMemoryUnregister(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature(SHARED_MEMORY)

    @_translate_errors
    def TraceSetting(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature("tracing is not supported by this server")

    @_translate_errors
    def LogSettings(self, request: Message, context: Context) -> Message:
        """Reject: not supported."""
        raise UnsupportedFeature("changing its log's settings is not supported by this server")


def _reject_repository(request: Message) -> None:
    if request.repository_name:
        raise UnsupportedFeature("'repository_name' specification is not supported")
