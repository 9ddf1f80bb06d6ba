"""The inference server: opens the ports, serves until it gets a signal, and stops without losing an answer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2_grpc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tritonclient.grpc import service_pb2_grpc

from moonfed.models.onnx_runtime import require_provider
from moonfed.serving import metrics
from moonfed.serving.grpc.health import HealthService
from moonfed.serving.grpc.receiving import ReceivingCalls
from moonfed.serving.grpc.routing import CONTROL, CONTROL_THREADS, HEALTH, INFERENCE, RoutingInterceptor, ThreadPools
from moonfed.serving.grpc.sending import UnreadAnswers
from moonfed.serving.grpc.service import InferenceService
from moonfed.serving.http.app import InferenceApp, answer_errors
from moonfed.serving.http.connection import BoundedProtocol
from moonfed.serving.http.connections import Connections
from moonfed.serving.listeners import SHUTDOWN_GRACE_SECONDS, bind_grpc, bind_socket, read_credentials, serve_http
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.requests.access import AccessControl
from moonfed.serving.requests.api_keys import ApiKeys
from moonfed.serving.requests.limits import open_file_limit
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from moonfed.serving.server_settings import ServerSettings

_log = logging.getLogger(__name__)
THREADS = 2  # for requests that do not block; see `thread_pool`
METRICS_CONNECTIONS = 32
_POLL_SECONDS = 0.01
GRPC_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPorts:
    """The ports that a server listens on."""

    grpc: int
    http: int
    metrics: int


def serve(settings: ServerSettings, ready: Callable[[ServingPorts], None]) -> None:
    """Serve until SIGTERM or SIGINT; call `ready` once clients can call.

    On the first signal the server reports that it is not ready, rejects inference, and ends once the requests in flight
    are answered; after `drain_seconds` it ends anyway, with exit code 1. A second signal ends it without waiting.
    """
    credentials = read_credentials(settings)
    require_provider(settings.models.provider)
    access = AccessControl(ApiKeys(settings.api_key_file) if settings.api_key_file else None, local=settings.is_local)
    connections = min(settings.limits.connections, max(1, open_file_limit() // 4))
    inference, pools = ElasticThreadPool(threads=THREADS, limit=settings.max_concurrent_requests), ThreadPools()
    server = _grpc_server(settings, inference, pools, access, connections)
    with (
        bind_socket("http_port", settings.host, settings.http_port) as http,
        bind_socket("metrics_port", settings.host, settings.metrics_port) as scraped,
    ):
        ports = ServingPorts(
            grpc=bind_grpc(server, settings, credentials), http=http.getsockname()[1], metrics=scraped.getsockname()[1]
        )
        models = ModelManager(settings.repository, settings.models)
        try:
            frontend = _Frontend(
                settings=settings,
                models=models,
                inference=inference,
                pools=pools,
                server=server,
                access=access,
                connections=connections,
            )
            asyncio.run(frontend.run(http, scraped, lambda: ready(ports)))
            if inference.in_flight:  # an ordinary exit would wait for these calls
                logging.shutdown()
                os._exit(1)
        finally:
            models.close()
            inference.close()


def _grpc_server(
    settings: ServerSettings,
    inference: ElasticThreadPool,
    pools: ThreadPools,
    access: AccessControl,
    connections: int,
) -> grpc.Server:
    limits = settings.limits
    most = {
        INFERENCE: max(1, settings.max_concurrent_requests // 2),
        HEALTH: CONTROL_THREADS // 2,
        CONTROL: CONTROL_THREADS // 2,
    }
    receiving = ReceivingCalls(limits, settings.max_request_bytes, most)
    return grpc.server(
        inference,  # type: ignore[arg-type]  # it only submits
        interceptors=[RoutingInterceptor(inference, pools, access, receiving, UnreadAnswers(limits))],
        options=[
            *GRPC_OPTIONS,
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            ("grpc.max_allowed_incoming_connections", connections),
            ("grpc.server_handshake_timeout_ms", int(1000 * limits.header_seconds)),
            ("grpc.http2.settings_timeout", int(1000 * limits.header_seconds)),
            ("grpc.max_connection_idle_ms", int(1000 * limits.idle_seconds)),
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frontend:
    """All protocols over one set of models."""

    settings: ServerSettings
    models: ModelManager
    inference: ElasticThreadPool
    pools: ThreadPools
    server: grpc.Server
    access: AccessControl
    connections: int  # for each protocol

    async def run(self, http: socket.socket, scraped: socket.socket, ready: Callable[[], None]) -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()  # the first signal, the second
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
        health = self._add_grpc_services()
        app = InferenceApp(self.models, self.inference, self.settings.max_request_bytes, self.access).application()
        async with (
            serve_http(app, http, self.settings, self._connections(self.connections)),
            serve_http(self._metrics_app(), scraped, self.settings, self._connections(METRICS_CONNECTIONS)),
        ):
            self.server.start()
            try:
                ready()
                await stop.wait()
                _log.info("stopping")
                self.inference.stop_accepting()
                health.refresh()
                await self._drain(hurry)
            finally:
                await asyncio.to_thread(self.server.stop(SHUTDOWN_GRACE_SECONDS).wait)

    def _add_grpc_services(self) -> HealthService:
        service = InferenceService(self.models, self.inference)
        health = HealthService(lambda: self.inference.accepting and self.models.ready(), self.pools.health)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, self.server)
        health_pb2_grpc.add_HealthServicer_to_server(health, self.server)
        return health

    async def _drain(self, hurry: asyncio.Event) -> None:
        """Wait until no request is in flight, at most `drain_seconds`, or until the second signal."""
        until = time.monotonic() + self.settings.drain_seconds
        while self.inference.in_flight and not hurry.is_set():
            if time.monotonic() >= until:
                _log.warning("stopping with %d inference requests in flight", self.inference.in_flight)
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _connections(self, limit: int) -> Connections[BoundedProtocol]:
        settings = self.settings
        return Connections(settings.limits, limit=limit, max_body_bytes=settings.max_request_bytes)

    def _metrics_app(self) -> Starlette:
        expose = metrics.exposition(self.models.statistics)

        async def scrape(_: Request) -> Response:
            return Response(await asyncio.to_thread(expose), headers={"Content-Type": metrics.CONTENT_TYPE})

        return Starlette(routes=[Route("/metrics", answer_errors(scrape, self._require_scraper))])

    def _require_scraper(self, request: Request) -> None:
        self.access.require_scraper(request.headers.get("Authorization"))
