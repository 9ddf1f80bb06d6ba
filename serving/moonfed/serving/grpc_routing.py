"""Admission and threads of gRPC calls, so that no call waits behind another kind of call.

Inference has the server's default pool to itself; a stream occupies a thread while it is open; health checks and
control calls have threads of their own. Calls beyond a limit are rejected on arrival, before they wait for a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from moonfed.errors import MoonfedError, Overloaded
from moonfed.serving.status_codes import status_of
from moonfed.serving.thread_pool import ElasticThreadPool

INFERENCE_SERVICE = "inference.GRPCInferenceService"
MAX_STREAMS = 64
_INFER, _STREAM = f"/{INFERENCE_SERVICE}/ModelInfer", f"/{INFERENCE_SERVICE}/ModelStreamInfer"
_CHECK, _WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"  # a watcher occupies no thread
_HEALTH = frozenset(
    [_CHECK, *(f"/{INFERENCE_SERVICE}/{name}" for name in ("ServerLive", "ServerReady", "ModelReady"))],
)
Handler = Any  # grpc.RpcMethodHandler, whose attributes the stubs lack


class ThreadPools:
    """Threads for everything but unary inference."""

    def __init__(self) -> None:
        self.health = ThreadPoolExecutor(4, thread_name_prefix="health")
        self.control = ThreadPoolExecutor(4, thread_name_prefix="control")
        self.rejections = ThreadPoolExecutor(4, thread_name_prefix="rejection")
        self.streams = _CountingPool(MAX_STREAMS, thread_name_prefix="stream")


class RoutingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in its types only
    """Routes every call to its pool, and rejects inference and streams beyond their limits."""

    def __init__(self, inference: ElasticThreadPool, pools: ThreadPools) -> None:
        self._inference, self._pools = inference, pools

    def intercept_service(self, continuation: Callable[..., Any], handler_call_details: Any) -> Handler:  # noqa: ANN401
        """Return the method's handler with its pool, or one that rejects the call."""
        method, handler = handler_call_details.method, continuation(handler_call_details)
        try:
            if method == _INFER:
                self._inference.require_capacity()
                return handler
            if method == _STREAM:
                self._require_stream_capacity()
                return _run_on(self._pools.streams, handler)
        except MoonfedError as error:
            return self._rejecting(handler, error)
        if handler is None or method == _WATCH:
            return handler
        return _run_on(self._pools.health if method in _HEALTH else self._pools.control, handler)

    def _require_stream_capacity(self) -> None:
        self._inference.require_capacity()
        if self._pools.streams.count >= MAX_STREAMS:
            raise Overloaded(f"Server is busy with {MAX_STREAMS} streams, as many as it takes at once")

    def _rejecting(self, handler: Handler, error: MoonfedError) -> Handler:
        code, _, message = status_of(error)

        def reject(_: object, context: grpc.ServicerContext) -> None:
            context.abort(code, message)

        reject.experimental_thread_pool = self._pools.rejections  # type: ignore[attr-defined]
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(reject)
        return grpc.unary_unary_rpc_method_handler(reject)


class _CountingPool(ThreadPoolExecutor):
    """A pool that knows how many of its calls have not ended."""

    def __init__(self, threads: int, *, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix=thread_name_prefix)
        self.count = 0
        self._count_lock = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        self._change(1)
        future = super().submit(function, *arguments, **named)
        future.add_done_callback(lambda _: self._change(-1))
        return future

    def _change(self, by: int) -> None:
        with self._count_lock:
            self.count += by


def _run_on(pool: ThreadPoolExecutor, handler: Handler) -> Handler:
    """Return the same handler, run by the pool: gRPC reads the attribute from the handler's function."""
    function = handler.stream_stream if handler.request_streaming else handler.unary_unary

    def call(request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ANN401
        return function(request, context)

    call.experimental_thread_pool = pool  # type: ignore[attr-defined]
    new = grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    return new(call, handler.request_deserializer, handler.response_serializer)
