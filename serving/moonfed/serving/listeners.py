"""The listening side of the server: bound sockets, TLS, and uvicorn inside an event loop that is already running."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import grpc
import uvicorn
from starlette.applications import Starlette

from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.files import require_file
from moonfed.serving.http.connection import BoundedProtocol
from moonfed.serving.http.connections import Connections
from moonfed.serving.server_settings import ServerSettings

SHUTDOWN_GRACE_SECONDS = 1.0  # for streams without a request, and for answers being sent
BACKLOG = 1024  # connections that the kernel queues before they are accepted
ACCEPTED_AT_ONCE = 16  # asyncio accepts these before the first one can be rejected for being too many
_POLL_SECONDS = 0.01


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers and with bounded connections."""

    def __init__(self, config: uvicorn.Config, shared: Connections[BoundedProtocol]) -> None:
        super().__init__(config)
        self._shared = shared

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does, with a deadline for TLS handshakes."""
        loop, config = asyncio.get_running_loop(), self.config
        seconds = self._shared.limits.header_seconds if config.ssl else None
        self.servers = []
        for each in sockets or []:
            server = await loop.create_server(
                self._connect, sock=each, ssl=config.ssl, backlog=ACCEPTED_AT_ONCE, ssl_handshake_timeout=seconds
            )
            each.listen(config.backlog)
            self.servers.append(server)
        self.started = True

    def _connect(self) -> BoundedProtocol:
        return BoundedProtocol(self.config, self.server_state, {}, shared=self._shared)


@asynccontextmanager
async def serve_http(
    app: Starlette, listening: socket.socket, settings: ServerSettings, shared: Connections[BoundedProtocol]
) -> AsyncIterator[None]:
    """Serve an application on a socket while the context lasts."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(SHUTDOWN_GRACE_SECONDS),
        ssl_keyfile=settings.tls_key,
        ssl_certfile=settings.tls_certificate,
        ssl_ca_certs=str(settings.tls_client_ca) if settings.tls_client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
    )
    server = _Uvicorn(config, shared)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not (server.started or task.done()):
            await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        server.should_exit = True
        await task


@contextmanager
def bind_socket(name: str, host: str, port: int) -> Iterator[socket.socket]:
    """Bind a TCP socket; raise AlreadyExists if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets with this protocol; with it, an answer takes 40 ms longer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise _cannot_listen(name, port, f"{host}:{port}", error.strerror or str(error)) from error
        yield listening


def bind_grpc(server: grpc.Server, settings: ServerSettings, credentials: grpc.ServerCredentials | None) -> int:
    """Bind the gRPC server, with TLS if there are credentials, and return its port; raise AlreadyExists."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        reason = "the port is in use or needs privileges, or the address is not one of this machine's"
        raise _cannot_listen("grpc_port", settings.grpc_port, address, reason) from error


def read_credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    """Read the TLS key pair, if any; raise NotFound without the files, InvalidInput if they do not match."""
    if settings.tls_key is None or settings.tls_certificate is None:
        return None
    for name, path in (("tls_key", settings.tls_key), ("tls_certificate", settings.tls_certificate)):
        require_file(name, path)
    key, certificate = settings.tls_key.read_bytes(), settings.tls_certificate.read_bytes()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except ssl.SSLError as error:
        raise InvalidInput(
            f"tls_key {settings.tls_key} and tls_certificate {settings.tls_certificate} must be a PEM key without "
            f"a password and its certificate: {error}"
        ) from error
    if settings.tls_client_ca is None:
        return grpc.ssl_server_credentials([(key, certificate)])
    require_file("tls_client_ca", settings.tls_client_ca)
    try:
        context.load_verify_locations(settings.tls_client_ca)
    except ssl.SSLError as error:
        raise InvalidInput(f"tls_client_ca is {settings.tls_client_ca}; it must be certificates in PEM") from error
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=settings.tls_client_ca.read_bytes(), require_client_auth=True
    )


def _cannot_listen(name: str, port: int, address: str, reason: str) -> AlreadyExists:
    return AlreadyExists(f"{name} is {port}; cannot listen on {address}: {reason}")
