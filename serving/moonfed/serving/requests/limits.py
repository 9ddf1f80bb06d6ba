"""Limits on requests and connections, so that no caller can exhaust the server; docs/serving.md lists them."""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits on everything that clients send, except the size of one request."""

    connections: int = 1000  # for each protocol
    header_seconds: float = 10.0  # for a TLS handshake, and for the headers of a request
    header_bytes: int = 64 << 10  # of an HTTP request, with its path
    header_count: int = 100
    pipelined_requests: int = 32  # on an HTTP connection, behind the one that is being answered
    body_seconds: float = 20.0  # for an HTTP body; longer while it arrives at `body_rate`
    response_seconds: float = 20.0  # for reading a response; longer for a large one, by its bytes at `body_rate`
    body_rate: int = 50_000  # bytes per second
    message_seconds: float = 60.0  # for a gRPC message
    pending_bytes: int = 512 << 20  # of unfinished requests, for each protocol, and of unread gRPC responses
    idle_seconds: float = 60.0  # of a gRPC connection without a call


def open_file_limit() -> int:
    """Raise the limit on open files as far as the system permits, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 1 << 30 if hard == resource.RLIM_INFINITY else hard
