"""What an error is in gRPC and in HTTP: Triton's codes, by the error's class."""

from __future__ import annotations

import logging

import grpc

from moonfed import errors

_log = logging.getLogger(__name__)
_STATUSES: dict[type[errors.MoonfedError], tuple[grpc.StatusCode, int]] = {
    errors.InvalidInput: (grpc.StatusCode.INVALID_ARGUMENT, 400),
    errors.NotFound: (grpc.StatusCode.NOT_FOUND, 404),
    errors.AlreadyExists: (grpc.StatusCode.ALREADY_EXISTS, 409),
    errors.ResourceExhausted: (grpc.StatusCode.RESOURCE_EXHAUSTED, 413),
    errors.WrongState: (grpc.StatusCode.UNAVAILABLE, 503),
    errors.Unavailable: (grpc.StatusCode.UNAVAILABLE, 503),
    errors.MoonfedError: (grpc.StatusCode.INTERNAL, 500),
}


def status_of(error: Exception) -> tuple[grpc.StatusCode, int, str]:
    """An error's gRPC code, HTTP status and sentence; one that is not ours is logged, and tells nothing."""
    for kind in type(error).__mro__:
        if kind in _STATUSES:
            return *_STATUSES[kind], str(error)
    _log.error("a request failed for a reason that nobody foresaw", exc_info=error)
    return grpc.StatusCode.INTERNAL, 500, "the server has a problem of its own; its log says more"
