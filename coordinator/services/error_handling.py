"""Turns errors into gRPC statuses, in one place: an interceptor around every method of every service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

import grpc

from coordinator.storage.passing_trouble import as_away, as_full_disk
from moonfed.errors import MoonfedError
from moonfed.status import to_status

_log = logging.getLogger(__name__)
Handler = Any  # grpc.RpcMethodHandler, whose types are not told
MAX_DETAILS = 2000  # characters; a device's own tensor names may be long
_FACTORIES = (
    ("unary_unary", grpc.unary_unary_rpc_method_handler),
    ("unary_stream", grpc.unary_stream_rpc_method_handler),
    ("stream_stream", grpc.stream_stream_rpc_method_handler),
)


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its types only
    """Errors of ours become their status; any other is logged and tells the caller nothing."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The method's handler, wrapped."""
        handler = await continuation(handler_call_details)
        for kind, factory in _FACTORIES:
            if handler is not None and getattr(handler, kind):
                wrap = _wrapped_call if kind == "unary_unary" else _wrapped_stream
                return factory(
                    wrap(getattr(handler, kind)),
                    request_deserializer=handler.request_deserializer,
                    response_serializer=handler.response_serializer,
                )
        return handler


def _wrapped_call(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: object, context: Any) -> Any:  # noqa: ANN401 - any method's messages
        try:
            return await method(request, context)
        except Exception as error:
            await _abort(context, error)

    return call


def _wrapped_stream(method: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
    async def stream(request: object, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        try:
            async with aclosing(method(request, context)) as replies:
                async for reply in replies:
                    yield reply
        except Exception as error:
            await _abort(context, error)

    return stream


async def _abort(context: Any, error: Exception) -> NoReturn:  # noqa: ANN401
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, MoonfedError):
        _log.error("a call of %s failed", context.peer(), exc_info=error)
        error = as_full_disk(error) or as_away(error) or error
    code, details, metadata = to_status(error)
    await context.abort(code, details[:MAX_DETAILS], metadata)
    raise asyncio.CancelledError  # abort has raised
