"""Admission and threads of gRPC calls, so that no call waits for calls of another kind.

Inference has the server's default pool to itself; a stream occupies a thread while it is open; health checks and
control calls have threads of their own. Calls that are not permitted or beyond a limit are rejected on arrival, before
they wait for a thread or a message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from moonfed.errors import MoonfedError, Overloaded
from moonfed.serving.grpc.receiving import ReceivingCalls
from moonfed.serving.grpc.sending import UnreadAnswers
from moonfed.serving.requests.access import AccessControl
from moonfed.serving.requests.status_codes import status_of
from moonfed.serving.requests.thread_pool import ElasticThreadPool

INFERENCE_SERVICE = "inference.GRPCInferenceService"
MAX_STREAMS = 64
CONTROL_THREADS = 16
INFERENCE, HEALTH, CONTROL, STREAM = "inference", "health", "control", "stream"  # kinds of calls
_INFER, _STREAM = f"/{INFERENCE_SERVICE}/ModelInfer", f"/{INFERENCE_SERVICE}/ModelStreamInfer"
_CHECK, _WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"  # a watcher occupies no thread
_SERVER_HEALTH = frozenset(
    [_CHECK, _WATCH, *(f"/{INFERENCE_SERVICE}/{name}" for name in ("ServerLive", "ServerReady"))]
)
_HEALTH = _SERVER_HEALTH | {f"/{INFERENCE_SERVICE}/ModelReady"}
_ADMIN = frozenset(f"/{INFERENCE_SERVICE}/RepositoryModel{change}" for change in ("Load", "Unload"))
_AUTHORIZATION = "authorization"
Handler = Any  # grpc.RpcMethodHandler, whose attributes the stubs lack


class ThreadPools:
    """Threads for everything but unary inference."""

    def __init__(self) -> None:
        self.health = ThreadPoolExecutor(CONTROL_THREADS, thread_name_prefix="health")
        self.control = ThreadPoolExecutor(CONTROL_THREADS, thread_name_prefix="control")
        self.rejections = ThreadPoolExecutor(4, thread_name_prefix="rejection")
        self.streams = _CountingPool(MAX_STREAMS, thread_name_prefix="stream")


class RoutingInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in its types only
    """Routes every call to its pool, and rejects those that are not permitted or beyond their limits."""

    def __init__(
        self,
        inference: ElasticThreadPool,
        pools: ThreadPools,
        access: AccessControl,
        receiving: ReceivingCalls,
        unread: UnreadAnswers,
    ) -> None:
        self._inference = inference
        self._pools = pools
        self._access = access
        self._receiving, self._unread = receiving, unread
        self._handlers: dict[str, Handler] = {}  # by method

    def intercept_service(self, continuation: Callable[..., Any], handler_call_details: Any) -> Handler:
        """Return the method's handler with its pool, or one that rejects the call."""
        method = handler_call_details.method
        try:
            if (self._access.needs_keys or method in _ADMIN) and method not in _SERVER_HEALTH:
                self._require_permission(method, handler_call_details.invocation_metadata)
            if method == _INFER:
                self._inference.require_capacity()
            elif method == _STREAM:
                self._require_stream_capacity()
        except MoonfedError as error:
            return self._rejecting(error)
        if (handler := self._handlers.get(method)) is None:
            handler = self._routed(method, continuation(handler_call_details))
            if handler is not None:
                self._handlers[method] = handler
        return handler

    def _require_permission(self, method: str, metadata: Any) -> None:
        authorization = next((value for key, value in metadata if key == _AUTHORIZATION), None)
        if method in _ADMIN:
            self._access.require_admin(authorization)
        else:
            self._access.require_user(authorization)

    def _require_stream_capacity(self) -> None:
        self._inference.require_capacity()
        if self._pools.streams.count >= MAX_STREAMS:
            raise Overloaded(f"Server is busy with {MAX_STREAMS} streams, as many as it takes at once")

    def _routed(self, method: str, handler: Handler) -> Handler:
        if handler is None:
            return None
        if method == _WATCH:
            return self._watching(handler)
        if method == _STREAM:
            return self._streaming(handler)
        if method == _INFER:
            return self._receiving_one(handler, None, INFERENCE)
        if method in _HEALTH:
            return self._receiving_one(handler, self._pools.health, HEALTH)
        return self._receiving_one(handler, self._pools.control, CONTROL)

    def _receiving_one(self, handler: Handler, pool: ThreadPoolExecutor | None, kind: str) -> Handler:
        """Return a unary handler that limits the times for its message and its answer.

        gRPC reads the pool from its function.
        """
        receive, answer = self._receiving.receive, handler.unary_unary
        sent, serialize = self._unread.add, handler.response_serializer

        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            message = receive(requests, context, kind)
            if message is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message; it must have one")
            return sent(context, serialize(answer(message, context)))

        if pool is not None:
            call.experimental_thread_pool = pool  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(call, handler.request_deserializer)

    def _streaming(self, handler: Handler) -> Handler:
        receive, answer = self._receiving.receive, handler.stream_stream
        sent, serialize = self._unread.each, handler.response_serializer

        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            answers = answer(iter(lambda: receive(requests, context, STREAM), None), context)
            return sent(context, map(serialize, answers))

        call.experimental_thread_pool = self._pools.streams  # type: ignore[attr-defined]
        return grpc.stream_stream_rpc_method_handler(call, handler.request_deserializer)

    def _watching(self, handler: Handler) -> Handler:
        """Return a handler for streams of health checks, which occupy a thread only until their message has arrived."""
        receive, answer = self._receiving.receive, handler.unary_stream

        def call(requests: Iterator[Any], context: Any, send_response_callback: Any) -> None:
            if (message := receive(requests, context, HEALTH)) is not None:
                answer(message, context, send_response_callback=send_response_callback)

        call.experimental_thread_pool = self._pools.health  # type: ignore[attr-defined]
        call.experimental_non_blocking = True  # type: ignore[attr-defined]
        return grpc.stream_stream_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)

    def _rejecting(self, error: MoonfedError) -> Handler:
        """Return a handler that rejects a call; it is a streaming one, which does not wait for a message."""
        code, _, message = status_of(error)

        def reject(_: object, context: grpc.ServicerContext) -> None:
            context.abort(code, message)

        reject.experimental_thread_pool = self._pools.rejections  # type: ignore[attr-defined]
        return grpc.stream_stream_rpc_method_handler(reject)


class _CountingPool(ThreadPoolExecutor):
    """A pool that knows how many of its calls have not ended."""

    def __init__(self, threads: int, *, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix=thread_name_prefix)
        self.count = 0
        self._count_lock = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self._change(1)
        future = super().submit(function, *arguments, **named)
        future.add_done_callback(lambda _: self._change(-1))
        return future

    def _change(self, by: int) -> None:
        with self._count_lock:
            self.count += by
