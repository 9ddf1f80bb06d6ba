"""The checks that every request passes before it is routed, and the headers that every response has.

DNS rebinding: the Host header must name the console. Cross-site requests: changes must come from the console's own
pages. Framing and injected markup: the content security policy permits neither, whatever a page contains.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from moonfed.observability.flood_log import FloodLog

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

PROXY_SECRET_HEADER = "X-Proxy-Secret"  # noqa: S105 - its name
MOST_BODY = 64 * 1024  # bytes
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",  # for browsers that ignore frame-ancestors
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The only caller to serve: its address, and the secret that it adds to each request."""

    address: str
    secret: bytes = field(repr=False)

    def sent(self, scope: Scope) -> bool:
        """Return whether a request comes from it."""
        secrets = [value for name, value in scope["headers"] if name == PROXY_SECRET_HEADER.lower().encode()]
        client = scope["client"][0] if scope.get("client") else ""
        return client == self.address and len(secrets) == 1 and hmac.compare_digest(secrets[0], self.secret)


class Guard:
    """An ASGI application that rejects requests of other sites and under other names, and protects its responses."""

    def __init__(
        self, application: Application, hosts: Iterable[str], *, secure: bool = False, proxy: Proxy | None = None
    ) -> None:
        self._application = application
        self._secure = secure
        self._proxy = proxy
        self._errors = FloodLog(_log)
        self._hosts = frozenset(host.lower() for host in hosts)  # with the port, or for any port without

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def protected(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        if rejection := self._stranger(scope) or self._rejection(scope["method"], scope["path"], headers):
            status, sentence = rejection
            await JSONResponse({"error": sentence}, status)(scope, receive, protected)
            return
        try:
            await self._application(scope, receive, protected)
        except Exception as error:  # which Starlette has answered; whoever repeats it does not fill the log
            self._errors.write(logging.ERROR, type(error).__name__, "a request failed", error=error)

    def _add_headers(self, headers: MutableHeaders, path: str) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers["Cache-Control"] = "no-store" if path.startswith("/api/") else "no-cache"
        if self._secure:
            headers["Strict-Transport-Security"] = "max-age=31536000"

    def _stranger(self, scope: Scope) -> tuple[int, str] | None:
        if self._proxy and not self._proxy.sent(scope):
            return 403, "the request does not come from the proxy that this console serves, with the proxy's secret"
        return None

    def _rejection(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason for which a request is rejected; None if it is served."""
        host = headers.get("host", "").lower()
        if len(headers.getlist("host")) != 1 or not self._is_ours(host):
            return 421, f"host is {host[:200]!r}; it must be the console's own name: see --name"
        if path.startswith("/api/") and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "the request comes from another site"
        if method in ("GET", "HEAD"):
            return None
        if method != "POST":
            return 405, f"method is {method[:20]!r}; it must be GET, HEAD or POST"
        return self._rejected_change(host, headers)

    def _rejected_change(self, host: str, headers: Headers) -> tuple[int, str] | None:
        scheme, separator, origin = headers.get("origin", "").lower().partition("://")
        if not separator or scheme not in ("http", "https") or origin != host:
            return 403, "the request does not come from the console's own pages: its Origin differs from its Host"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "content-type must be application/json"
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return 411, "content-length must be given"
        if int(length[:12]) > MOST_BODY:
            return 413, f"the body has {length[:12]} bytes; it must have at most {MOST_BODY}"
        return None

    def _is_ours(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        bare = name if colon and port.isdigit() else host
        return host in self._hosts or bare in self._hosts
