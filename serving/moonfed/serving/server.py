"""Serves a model repository: opens the ports, answers until told to stop, and stops without losing an answer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import uvicorn
from grpc_health.v1 import health_pb2_grpc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tritonclient.grpc import service_pb2_grpc

from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.files import require_file
from moonfed.serving import metrics
from moonfed.serving.grpc_service import AdmissionInterceptor, HealthService, InferenceService, ThreadPools
from moonfed.serving.http_app import InferenceApp
from moonfed.serving.model_manager import ModelManager, ServingSettings
from moonfed.serving.onnx_session import require_provider
from moonfed.serving.worker_threads import Workers
from moonfed.validate import require_port

_log = logging.getLogger(__name__)
THREADS = 2  # for requests that do not wait; see `workers`
LOOK_SECONDS = 0.01
GOODBYE_SECONDS = 1.0  # for streams without a request, and answers on their way
BACKLOG = 1024
GRPC_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a repository is reached. Port 0 stands for any free one."""

    repository: Path
    models: ServingSettings = field(default_factory=ServingSettings)
    host: str = "127.0.0.1"
    grpc_port: int = 8001
    http_port: int = 8000
    metrics_port: int = 8002
    tls_key: Path | None = None  # PEM; with it gRPC and HTTP are served with TLS only
    tls_certificate: Path | None = None  # PEM, with the chain behind it
    max_request_bytes: int = 64 << 20
    max_concurrent_requests: int = 256  # of inference, of all protocols together
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("grpc_port", "http_port", "metrics_port"):
            require_port(name, getattr(self, name))
        ports = [port for port in (self.grpc_port, self.http_port, self.metrics_port) if port]
        if len(set(ports)) < len(ports):
            three = f"{self.grpc_port}, {self.http_port} and {self.metrics_port}"
            raise InvalidInput(f"grpc_port, http_port and metrics_port are {three}; they must be three ports")
        if (self.tls_key is None) != (self.tls_certificate is None):
            raise InvalidInput("tls_key and tls_certificate must be given together, or neither")
        for name in ("max_request_bytes", "max_concurrent_requests"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if not 0 <= self.drain_seconds <= 3600:
            raise InvalidInput(f"drain_seconds is {self.drain_seconds}; it must be from 0 to 3600")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPorts:
    """Where a server listens."""

    grpc: int
    http: int
    metrics: int


def serve(settings: ServerSettings, ready: Callable[[ServingPorts], None]) -> None:
    """Serves until SIGTERM or SIGINT; `ready` is called when clients can call.

    Told to stop, it is not ready at once, takes no more inference, and ends when what is under way is answered, or
    after `drain_seconds`, then with exit code 1. A second signal ends it without waiting.
    """
    credentials = _credentials(settings)
    require_provider(settings.models.provider)
    pools, workers = ThreadPools(), Workers(threads=THREADS, limit=settings.max_concurrent_requests)
    server = grpc.server(
        workers,  # type: ignore[arg-type]  # it only submits
        interceptors=[AdmissionInterceptor(workers, pools)],
        options=[*GRPC_OPTIONS, ("grpc.max_receive_message_length", settings.max_request_bytes)],
    )
    with (
        _listening("http_port", settings.host, settings.http_port) as http,
        _listening("metrics_port", settings.host, settings.metrics_port) as scraped,
    ):
        ports = ServingPorts(
            grpc=_bind(server, settings, credentials), http=http.getsockname()[1], metrics=scraped.getsockname()[1]
        )
        models = ModelManager(settings.repository, settings.models)
        try:
            front = _Front(settings=settings, models=models, workers=workers, pools=pools, server=server)
            asyncio.run(front.run(http, scraped, lambda: ready(ports)))
            if workers.in_flight:  # for whom an ordinary end would wait
                logging.shutdown()
                os._exit(1)
        finally:
            models.close()
            workers.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    """The protocols over one set of models."""

    settings: ServerSettings
    models: ModelManager
    workers: Workers
    pools: ThreadPools
    server: grpc.Server

    async def run(self, http: socket.socket, scraped: socket.socket, ready: Callable[[], None]) -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
        health = self._add_services()
        app = InferenceApp(self.models, self.workers, self.settings.max_request_bytes).application()
        tls = (self.settings.tls_key, self.settings.tls_certificate)
        async with _serving(app, http, *tls), _serving(_metrics_app(self.models), scraped, None, None):
            self.server.start()
            try:
                ready()
                await stop.wait()
                _log.info("stopping")
                self.workers.refuse()
                health.refresh()
                await self._drain(hurry)
            finally:
                await asyncio.to_thread(self.server.stop(GOODBYE_SECONDS).wait)

    def _add_services(self) -> HealthService:
        health = HealthService(lambda: self.workers.accepting and self.models.ready(), self.pools)
        service = InferenceService(self.models, self.workers, self.pools)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(health, self.server)
        return health

    async def _drain(self, hurry: asyncio.Event) -> None:
        """Until nothing is under way any more, or it has taken too long."""
        until = time.monotonic() + self.settings.drain_seconds
        while self.workers.in_flight and not hurry.is_set():
            if time.monotonic() >= until:
                _log.warning("stopping with %d inference requests under way", self.workers.in_flight)
                return
            await asyncio.sleep(LOOK_SECONDS)


class _Uvicorn(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _serving(
    app: Starlette, listening: socket.socket, key: Path | None, certificate: Path | None
) -> AsyncIterator[None]:
    """Serves an application on a socket for as long as the context lasts."""
    server = _Uvicorn(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(GOODBYE_SECONDS),
            ssl_keyfile=key,
            ssl_certfile=certificate,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not (server.started or task.done()):
            await asyncio.sleep(LOOK_SECONDS)
        yield
    finally:
        server.should_exit = True
        await task


def _metrics_app(models: ModelManager) -> Starlette:
    expose = metrics.exposition(models.statistics)

    async def scrape(_: Request) -> Response:
        return Response(await asyncio.to_thread(expose), headers={"Content-Type": metrics.CONTENT_TYPE})

    return Starlette(routes=[Route("/metrics", scrape)])


def _credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    """None for plaintext; raises NotFound without the files, InvalidInput if key and certificate are not a pair."""
    if settings.tls_key is None or settings.tls_certificate is None:
        return None
    for name, path in (("tls_key", settings.tls_key), ("tls_certificate", settings.tls_certificate)):
        require_file(name, path)
    key, certificate = settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes()
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_certificate, settings.tls_key)
    except ssl.SSLError as error:
        raise InvalidInput(
            f"tls_key {settings.tls_key} and tls_certificate {settings.tls_certificate} must be a PEM key without "
            f"a password and its certificate: {error}"
        ) from error
    return grpc.ssl_server_credentials([(key, certificate)])


@contextmanager
def _listening(name: str, host: str, port: int) -> Iterator[socket.socket]:
    """A socket that is bound; raises AlreadyExists if that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise _taken(name, port, f"{host}:{port}", error.strerror or str(error)) from error
        yield listening


def _bind(server: grpc.Server, settings: ServerSettings, credentials: grpc.ServerCredentials | None) -> int:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        reason = "the port is taken, or the host is not this machine"
        raise _taken("grpc_port", settings.grpc_port, address, reason) from error


def _taken(name: str, port: int, address: str, reason: str) -> AlreadyExists:
    return AlreadyExists(f"{name} is {port}; cannot listen on {address}: {reason}")
