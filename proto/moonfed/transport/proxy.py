"""HTTP proxies between a caller and its coordinator: selection and CONNECT.

gRPC tunnels through the proxy of a channel option or of the environment, but reports little about a proxy that
rejects. This module selects the same proxy and opens a tunnel itself to explain the failure.
"""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from moonfed.errors import InvalidInput, Unavailable

# In gRPC's order; the first that is set counts. Names in capitals do not count for gRPC.
VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
DEFAULT_PORT = 443  # gRPC's, for a proxy without one
PROXY_AUTHENTICATION_REQUIRED = 407


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; its string form omits the password."""

    host: str
    port: int
    credentials: str = ""  # user:password, as they are

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_proxy(url: str) -> Proxy:
    """Parse http://[USER:PASSWORD@]HOST:PORT; InvalidInput, without the password, for anything else."""
    found = _read(url, None)
    if found is None:
        scheme, slashes, rest = url.rpartition("//")
        raise InvalidInput(field="proxy", value=scheme + slashes + rest.rpartition("@")[2], allowed="http://HOST:PORT")
    return found


def ignore_proxy_exceptions() -> dict[str, str]:
    """Return environment variables with which `no_proxy` does not override an explicit proxy."""
    return {EXCEPTIONS[0]: ""}


def proxy_between(host: str, option: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """Return the proxy that gRPC uses for a host: the option's or the environment's, unless excepted."""
    url = option or next((environment[name] for name in VARIABLES if environment.get(name)), "")
    exceptions = next((environment[name] for name in EXCEPTIONS if name in environment), "")
    if not url or any(_matches(host, entry.strip()) for entry in exceptions.split(",") if entry.strip()):
        return None
    return _read(url, DEFAULT_PORT)


def open_tunnel(proxy: Proxy, address: str, seconds: float) -> socket.socket:
    """Connect to `host:port` through a proxy; Unavailable explains the proxy's rejection."""
    try:
        connection = socket.create_connection((proxy.host, proxy.port), seconds)
    except OSError as error:
        raise Unavailable(f"the proxy at {proxy} cannot be reached: {error.strerror or error}") from error
    try:
        status = _connect(connection, proxy, address)
        if not 200 <= status < 300:
            raise Unavailable(_rejection(proxy, address, status))
    except OSError as error:
        connection.close()
        raise Unavailable(f"the connection to the proxy at {proxy} failed: {error.strerror or error}") from error
    except Unavailable:
        connection.close()
        raise
    return connection


def _read(url: str, default_port: int | None) -> Proxy | None:
    """Parse a URL; None unless gRPC can use it as a proxy."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or default_port
    except ValueError:
        return None
    if not host or not port or parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.fragment:
        return None
    return Proxy(host, port, unquote(parts.netloc.rpartition("@")[0]))


def _matches(host: str, entry: str) -> bool:
    """Match as gRPC does: the end of a name, or a network."""
    if host.lower().endswith(entry.lower()):
        return True
    with suppress(ValueError):
        from ipaddress import ip_address, ip_network

        return ip_address(host) in ip_network(entry, strict=False)
    return False


def _connect(connection: socket.socket, proxy: Proxy, address: str) -> int:
    """Send CONNECT; return the status of the response, 0 if it is not HTTP."""
    from http.client import HTTPException, HTTPResponse  # memory that only devices behind a proxy need

    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    if proxy.credentials:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(proxy.credentials.encode()).decode()}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    # It may buffer bytes after the header. None are lost: TLS servers wait for the client to speak first.
    response = HTTPResponse(connection, method="CONNECT")
    try:
        response.begin()
    except HTTPException:
        return 0
    finally:
        response.close()
    return response.status


def _rejection(proxy: Proxy, address: str, status: int) -> str:
    if status == PROXY_AUTHENTICATION_REQUIRED:
        what, which = ("rejects this password", "the right one") if proxy.credentials else ("requires a password", "it")
        return f"the proxy at {proxy} {what} (407); give {which} as http://USER:PASSWORD@HOST:PORT"
    if status == 0:
        return f"the server at {proxy} does not answer as an HTTP proxy does"
    return f"the proxy at {proxy} refuses to connect to {address}: status {status}"
