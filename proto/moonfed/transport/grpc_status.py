"""Translation between moonfed's errors and gRPC statuses, used by both ends.

The sentence is sent as the status's details; as trailing metadata the error's class, finer than a status code, and its
page in docs/errors.
Unknown errors reveal nothing to the caller.
"""

from __future__ import annotations

import math
from typing import cast

import grpc

from moonfed import errors
from moonfed.printable import printable
from moonfed.version import CONTRACT_VERSION

ERROR_KEY = "moonfed-error"
DOCS_KEY = "moonfed-docs"
RETRY_AFTER_KEY = "moonfed-retry-after-seconds"

_CODES: dict[type[errors.MoonfedError], grpc.StatusCode] = {
    errors.SchemaMismatch: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.UnsafePlan: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UntrustedRelease: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UntrustedBundle: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooLate: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RunStopped: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RunFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.WrongState: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Denied: grpc.StatusCode.PERMISSION_DENIED,
    errors.Renamed: grpc.StatusCode.UNAUTHENTICATED,
    errors.Untrusted: grpc.StatusCode.UNAUTHENTICATED,
    errors.VersionMismatch: grpc.StatusCode.UNIMPLEMENTED,
    errors.Corrupt: grpc.StatusCode.DATA_LOSS,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TrainingFailed: grpc.StatusCode.ABORTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
}
_BY_NAME = {kind.__name__: kind for kind in _CODES}
_BY_CODE = {code: kind for kind, code in _CODES.items()} | {
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.Unavailable,
    grpc.StatusCode.CANCELLED: errors.Unavailable,
}


def to_status(error: BaseException) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Return the status code, details and trailing metadata for an error."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            page = (DOCS_KEY, cast(errors.MoonfedError, error).docs)
            return _CODES[kind], str(error), ((ERROR_KEY, kind.__name__), page, *_retry_after(error))
    page = (DOCS_KEY, f"errors/{errors.MoonfedError.slug}")
    return grpc.StatusCode.INTERNAL, "internal error; the coordinator's log has the details", (page,)


def _retry_after(error: BaseException) -> tuple[tuple[str, str], ...]:
    return ((RETRY_AFTER_KEY, f"{error.retry_after_seconds:.3f}"),) if isinstance(error, errors.TooLate) else ()


def error_name(error: grpc.RpcError) -> str | None:
    """Return the class of the error that the other side raised; None if gRPC itself failed."""
    metadata = cast(grpc.Call, error).trailing_metadata() or ()
    return next((str(value) for key, value in metadata if key == ERROR_KEY and value in _BY_NAME), None)


def from_rpc_error(error: grpc.RpcError) -> errors.MoonfedError:
    """Return the moonfed error of a failed call."""
    call = cast(grpc.Call, error)  # a client's call raises an error that is both, which grpc's types do not express
    code = call.code()
    details = printable(call.details() or code.name)  # the other side's words reach terminals and logs
    name = error_name(error)
    if name == errors.TooLate.__name__:
        return errors.TooLate(details, _retry_after_seconds(call))
    if name:
        return _BY_NAME[name](details)
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return errors.VersionMismatch(
            f"this port does not support the call ({details}); this program uses contract version {CONTRACT_VERSION}: "
            "check the port and the coordinator's release"
        )
    return _BY_CODE.get(code, errors.MoonfedError)(details)


def _retry_after_seconds(call: grpc.Call) -> float:
    """Read the retry delay from trailing metadata; 0 for anything invalid."""
    text = next((str(value) for key, value in call.trailing_metadata() or () if key == RETRY_AFTER_KEY), "")
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds < math.inf else 0.0
