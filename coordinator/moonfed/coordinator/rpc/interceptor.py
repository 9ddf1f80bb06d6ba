"""An interceptor around every method: rate limits, bounded requests, and errors as gRPC statuses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc

from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.authentication import caller_of, identify
from moonfed.coordinator.rpc.rate_limit import RateLimiter
from moonfed.coordinator.rpc.request_parser import ParsedRequests, parse_or_reject, request_parser
from moonfed.coordinator.rpc.sockets import network_of
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.support.error_log import ErrorLog
from moonfed.errors import Denied, Untrusted
from moonfed.transport.grpc_status import to_status
from moonfed.version import CONTRACT_VERSION

Handler = Any  # grpc.RpcMethodHandler, which has no type hints
Admit = Callable[[Any], AbstractContextManager[None]]
Abort = Callable[[Any, Exception], Awaitable[NoReturn]]
Parse = Callable[[Any], Any]  # from a request's bytes, or a stream of parsed ones
Ended = Callable[[str, float], None]  # a call, with its status and its seconds
ENROLMENT = "/moonfed.v1.Enrolment/"
RATE_LIMITED = ("/moonfed.v1.Fleet/", ENROLMENT)
OK, CANCELLED = grpc.StatusCode.OK.name, grpc.StatusCode.CANCELLED.name
MAX_DETAILS = 2000  # characters; a device's own tensor names may be long
_FACTORIES = (
    ("unary_unary", grpc.unary_unary_rpc_method_handler),
    ("unary_stream", grpc.unary_stream_rpc_method_handler),
    ("stream_stream", grpc.stream_stream_rpc_method_handler),
)


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its types only
    """Conversion of our errors to statuses; records denied calls; logs other errors and hides them from the caller.

    `observer` is told how long each call took, and its status.
    """

    def __init__(self, limiter: RateLimiter, auditor: Auditor, observer: Observer = SILENT) -> None:
        self._observer = observer
        self._limiter = limiter
        self._auditor = auditor
        self._errors = ErrorLog()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap the method's handler."""
        handler = await continuation(handler_call_details)
        if handler is None:  # of a later release, or for another port
            return _unknown(handler_call_details.method)
        limited = handler_call_details.method.startswith(RATE_LIMITED)
        admit_one = _admit_enrolment if handler_call_details.method.startswith(ENROLMENT) else _admit
        admit = partial(admit_one, self._limiter) if limited else _unlimited
        abort = partial(self._abort, handler_call_details.method)
        ended = partial(self._observer.call_ended, handler_call_details.method)
        for kind, factory in _FACTORIES:
            if getattr(handler, kind):
                wrap = _wrapped_call if kind == "unary_unary" else _wrapped_stream
                parse: Parse = request_parser(handler.request_deserializer)
                deserialize: Parse | None = None  # the request is parsed once it is admitted
                if kind == "stream_stream":
                    deserialize = partial(parse_or_reject, parse)
                    parse = ParsedRequests
                return factory(
                    wrap(getattr(handler, kind), parse, admit, abort, ended),
                    request_deserializer=deserialize,
                    response_serializer=partial(_serialize, handler.response_serializer),
                )
        return handler

    async def _abort(self, method: str, context: Any, error: Exception) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, (Denied, Untrusted)) and not method.startswith(ENROLMENT):  # which records its own
            await self._auditor.denied(identify(context), method.rpartition("/")[2], error)
        self._errors.failed(context.peer(), error)
        error = as_transient(error) or error
        code, details, metadata = to_status(error)
        await context.abort(code, details[:MAX_DETAILS], metadata)
        raise asyncio.CancelledError  # abort has raised


def _unknown(method: str) -> Handler:
    """Reject a call of any kind without counting it: callers choose its name."""
    name = method.rpartition(".")[2]
    details = f"the coordinator uses contract version {CONTRACT_VERSION}, which lacks {name}"[:MAX_DETAILS]

    async def reject(_requests: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, details)

    return grpc.stream_stream_rpc_method_handler(reject)


def _serialize(serialize: Callable[[Any], bytes], reply: object) -> bytes:
    """Serialize a reply, unless the method has done so."""
    return reply if isinstance(reply, bytes) else serialize(reply)


def _admit(limiter: RateLimiter, context: Any) -> AbstractContextManager[None]:
    return limiter.call(caller_of(context))


def _admit_enrolment(limiter: RateLimiter, context: Any) -> AbstractContextManager[None]:
    """Admit a caller that has no certificate yet: by address, since a guesser of tokens would reconnect."""
    kind, _, address = unquote(host_of(context.peer())).partition(":")
    return limiter.call(f"{kind}:{network_of(address)}")


def host_of(peer: str) -> str:
    """Return the address of a gRPC peer without its port, which changes with every connection."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


def _unlimited(_context: object) -> AbstractContextManager[None]:
    return nullcontext()


def _status_of(error: Exception, context: Any) -> str:
    """Return the name of the status that a failed call ends with."""
    if isinstance(error, grpc.aio.AbortError):  # by a servicer that is not ours, such as the health check's
        code = context.code()
        return next((status.name for status in grpc.StatusCode if status.value[0] == code), "UNKNOWN")
    return to_status(as_transient(error) or error)[0].name


def _wrapped_call(
    method: Callable[..., Awaitable[Any]], parse: Parse, admit: Admit, abort: Abort, ended: Ended
) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        began, status = time.perf_counter(), CANCELLED
        try:
            with admit(context):
                reply = await method(parse(request), context)
            status = OK
            return reply
        except Exception as error:
            status = _status_of(error, context)
            await abort(context, error)
        finally:
            ended(status, time.perf_counter() - began)

    return call


def _wrapped_stream(
    method: Callable[..., Any], parse: Parse, admit: Admit, abort: Abort, ended: Ended
) -> Callable[..., AsyncIterator[Any]]:
    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        began, status = time.perf_counter(), CANCELLED
        try:
            with admit(context):
                async with aclosing(method(parse(request), context)) as replies:
                    async for reply in replies:
                        yield reply
            status = OK
        except Exception as error:
            status = _status_of(error, context)
            await abort(context, error)
        finally:
            ended(status, time.perf_counter() - began)

    return stream
