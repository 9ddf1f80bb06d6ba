"""The HTTP endpoint for scrapes and health checks, in threads of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from moonfed.errors import AlreadyExists
from moonfed.observability.flood_log import FloodLog

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_log = logging.getLogger(__name__)
REQUEST_SECONDS = 10.0  # after which a silent client is cut off
POLL_SECONDS = 0.1  # by which stopping is delayed
HEALTH = "/health"
_PLAIN = ("Content-Type", "text/plain")


class _Handler(WSGIRequestHandler):
    """Serves one request without logging it."""

    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        pass


def _application(registry: CollectorRegistry, health: Callable[[], object]) -> Application:
    """Return what answers requests: with metrics or health, or with an error that the log explains."""
    export: Application = make_wsgi_app(registry)
    log = FloodLog(_log)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            if environ["PATH_INFO"] == HEALTH:
                health()
                start_response("200 OK", [_PLAIN])
                return [b"healthy\n"]
            return export(environ, start_response)
        except Exception as error:
            log.write(logging.WARNING, type(error).__name__, "a scrape or health check failed: %s", error)
            start_response("503 Service Unavailable", [_PLAIN])
            return [b"the coordinator's log has the reason\n"]

    return answer


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request; none of them delays the end of the process."""

    daemon_threads = True


class _Server6(_Server):
    """The same for an IPv6 address."""

    address_family = socket.AF_INET6


@contextmanager
def serving(registry: CollectorRegistry, health: Callable[[], object], host: str, port: int) -> Iterator[int]:
    """Serve the registry's metrics until the context ends; yield the port. Raises AlreadyExists if it is taken.

    `health` raises an error if the program does not work; it must answer in seconds, also without a database.
    """
    kind = _Server6 if ":" in host else _Server
    try:
        server = make_server(host, port, _application(registry, health), kind, _Handler)
    except OSError as error:
        raise AlreadyExists(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
