"""The console's process: open the port, print a one-time link, serve until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import stat
import sys
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from moonfed.coordinator.console.access import Access
from moonfed.coordinator.console.app import console_application
from moonfed.coordinator.console.control import load_operators
from moonfed.coordinator.console.guard import Proxy
from moonfed.coordinator.console.passwords import read_passwords
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.files import require_file

MOST_CONNECTIONS = 256
MOST_HEADER_BYTES = 16 * 1024
IDLE_SECONDS = 30  # after which a connection without a request is closed
LEAST_SECRET, MOST_SECRET = 32, 1024  # characters of the proxy's secret
SECRET = re.compile(rb"[A-Za-z0-9_-]{%d,%d}" % (LEAST_SECRET, MOST_SECRET))
STOP_SECONDS = 1  # for requests in flight; pages follow again by themselves


def serve_console(settings: ConsoleSettings, ready: Callable[[str, str], None]) -> None:
    """Serve until a signal; call `ready` with the address, and a one-time link or "" where passwords are used.

    Raises AlreadyExists if the port is taken, and what `load_operators` and `read_passwords` raise.
    """
    for option, file in (("tls-cert", settings.certificate), ("tls-key", settings.key)):
        if file is not None:
            require_file(option, file)
    access = Access(
        settings=settings,
        operators=load_operators(settings),
        passwords=read_passwords(settings.password_file) if settings.password_file else None,
        proxy=_read_proxy(settings) if settings.trusted_proxy else None,
    )
    _require_operators(access)
    with _listen(settings) as listener:
        port = listener.getsockname()[1]
        access = replace(access, settings=replace(settings, port=port))
        server = uvicorn.Server(_config(access))
        asyncio.run(_serve(server, listener, access, ready))


async def _serve(
    server: uvicorn.Server, listener: socket.socket, access: Access, ready: Callable[[str, str], None]
) -> None:
    address = _address(access.settings)
    linked = access.passwords is None and not access.settings.trusted_proxy
    operator = next(iter(access.operators))

    def link() -> str:
        return f"{address}/login#{access.links.issue(operator)}" if linked else ""

    ready(address, link())
    if linked and sys.stdin and sys.stdin.isatty():
        _link_on_enter(lambda: ready(address, link()))
    await server.serve(sockets=[listener])


def _link_on_enter(issue: Callable[[], None]) -> None:
    """Print another link whenever Enter is pressed in the console's terminal."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if sys.stdin.readline():
            issue()
        else:  # the terminal is closed
            loop.remove_reader(sys.stdin)

    with contextlib.suppress(NotImplementedError, PermissionError):
        loop.add_reader(sys.stdin, read)


def _read_proxy(settings: ConsoleSettings) -> Proxy:
    """Read the proxy's secret; raises InvalidInput if other users may read it, or if it can be guessed."""
    file = settings.proxy_secret_file
    assert file is not None  # noqa: S101 - the settings are complete
    require_file("proxy-secret-file", file)
    if (mode := stat.S_IMODE(file.stat().st_mode)) & 0o007:
        raise InvalidInput(
            field="proxy-secret-file",
            value=file,
            rest=f", which has mode {mode:o}; it must be hidden from other users: chmod 640 {file}",
        )
    secret = file.read_bytes().strip()
    if not SECRET.fullmatch(secret):
        raise InvalidInput(
            f"proxy-secret-file {str(file)!r} must hold {LEAST_SECRET} to {MOST_SECRET} letters, digits, '-' and '_', "
            "such as those of: openssl rand -hex 32"
        )
    return Proxy(address=settings.trusted_proxy, secret=secret)


def _listen(settings: ConsoleSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise AlreadyExists(
            f"the console cannot listen on {where}: {error.strerror}; choose another --host or --port"
        ) from error


def _config(access: Access) -> uvicorn.Config:
    settings = access.settings
    return uvicorn.Config(
        console_application(access),
        loop="asyncio",
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # addresses are the peers' own
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )


def _address(settings: ConsoleSettings) -> str:
    host = settings.names[0] if settings.names else settings.host
    host = f"[{host}]" if ":" in host else host
    return f"{settings.scheme}://{host}:{settings.port}"


def _require_operators(access: Access) -> None:
    """Raise an error unless each password is that of an operator whose identity the console holds."""
    if access.passwords and (strangers := sorted(access.passwords.operators - set(access.operators))):
        raise NotFound(
            f"password-file names {strangers[0]!r}, whose identity the console lacks; add it with --identity DIR"
        )
    if not access.operators:
        raise InvalidInput("identity is not given; name an operator's directory with --identity")
