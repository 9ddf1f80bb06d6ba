"""HTTP proxies between a caller and its coordinator: what an option names, what the environment does, and CONNECT.

gRPC opens its own tunnels (the channel option `grpc.http_proxy`, or the environment) and says nothing of a proxy that
refuses. What is here finds the same proxy, so that one attempt by hand can explain the failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from moonfed.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; its printed form tells no password."""

    host: str
    port: int
    credentials: str = ""  # user:password, as they are

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_proxy(url: str) -> Proxy:
    """Reads http://[USER:PASSWORD@]HOST:PORT; InvalidInput, which tells no password, if it is anything else."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidInput(f"proxy is {_without_credentials(url)!r}; it must be http://HOST:PORT")
    return Proxy(host, port, unquote(parts.netloc.rpartition("@")[0]))


def _without_credentials(url: str) -> str:
    scheme, slashes, rest = url.rpartition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"
