"""The gRPC and HTTP status of each error class: Triton's codes."""

from __future__ import annotations

import logging

import grpc

from moonfed import errors
from moonfed.serving.requests.features import UnsupportedFeature

_log = logging.getLogger(__name__)


_STATUSES: dict[type[errors.MoonfedError], tuple[grpc.StatusCode, int]] = {
    errors.InvalidInput: (grpc.StatusCode.INVALID_ARGUMENT, 400),
    errors.NotFound: (grpc.StatusCode.NOT_FOUND, 404),
    errors.AlreadyExists: (grpc.StatusCode.ALREADY_EXISTS, 409),
    errors.Untrusted: (grpc.StatusCode.UNAUTHENTICATED, 401),
    errors.Denied: (grpc.StatusCode.PERMISSION_DENIED, 403),
    errors.ResourceExhausted: (grpc.StatusCode.RESOURCE_EXHAUSTED, 413),
    errors.WrongState: (grpc.StatusCode.UNAVAILABLE, 503),
    errors.Unavailable: (grpc.StatusCode.UNAVAILABLE, 503),
    UnsupportedFeature: (grpc.StatusCode.UNIMPLEMENTED, 501),
    errors.MoonfedError: (grpc.StatusCode.INTERNAL, 500),
}


def status_of(error: Exception) -> tuple[grpc.StatusCode, int, str]:
    """Return an error's gRPC code, HTTP status and message; log an unexpected one, and disclose nothing about it."""
    for kind in type(error).__mro__:
        if kind in _STATUSES:
            return *_STATUSES[kind], str(error)
    _log.error("unexpected error in a request", exc_info=error)
    return grpc.StatusCode.INTERNAL, 500, "internal error; the server's log has the details"
