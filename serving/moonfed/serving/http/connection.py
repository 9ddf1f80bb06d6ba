"""One HTTP connection: uvicorn's protocol with limits on headers, bodies, pipelining and times.

With its fast parser uvicorn limits none of them: a header may have any size, and a client that stops in the middle of a
request keeps its connection forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from moonfed.serving.http.connections import Body, Connections

_DISCARDED_BYTES = 1 << 20  # of a body beyond four times the largest one; its client reads the response only at the end
LINGER_SECONDS = 10.0  # without progress, in sending the rest of an answered request or in reading a response
_BAD_REQUEST = 400
_TIMEOUT = 408
_BODY_TOO_LARGE = 413
_TOO_MANY = 429
_HEADERS_TOO_LARGE = 431
_UNAVAILABLE = 503
_REASONS: Mapping[int, str] = MappingProxyType(
    {
        _BAD_REQUEST: "the request is not HTTP",
        _TIMEOUT: "the request did not arrive in time",
        _BODY_TOO_LARGE: "the request's body is too large",
        _TOO_MANY: "too many pipelined requests",
        _HEADERS_TOO_LARGE: "the request's headers are too large, or too many",
        _UNAVAILABLE: "the server is receiving too many requests",
    }
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose requests are bounded."""

    def __init__(self, *arguments: Any, shared: Connections[BoundedProtocol], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._shared = shared
        self._limits = shared.limits
        self._application = self.app
        self._unparsed = 0  # bytes since the parser's last event
        self._header_bytes = self._header_count = 0
        self._begun = self._in_body = False
        self._body_bytes = 0
        self._body_began = 0.0
        self._body = Body()
        self._timer: asyncio.TimerHandle | None = None
        self._reading_timer: asyncio.TimerHandle | None = None  # runs while the client has a response to read
        self._rejection = _BAD_REQUEST

    def connection_made(self, transport: Any) -> None:
        """Admit the connection, and wait for its first request."""
        super().connection_made(transport)
        self._start_timer(self._limits.header_seconds)
        if (excess := self._shared.admit(self)) is not None:
            excess.reject(_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and its requests."""
        self._drop_requests()
        self._stop_timer()
        self._stop_reading_timer()
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]  # as before the first request; it refers to this connection

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # to an unsupported protocol: the request is answered without the upgrade
        except httptools.HttpParserError:
            self.reject(self._rejection)
            return
        if self._unparsed > self._limits.header_bytes:
            self.reject(_HEADERS_TOO_LARGE)
        elif self._timer is None and (self._in_body or self._is_idle()):
            self._start_timer(self._limits.body_seconds if self._in_body else self._limits.header_seconds)

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._unparsed = self._header_bytes = self._header_count = 0
        self._begun = True
        self._shared.set_waiting(self, True)

    def on_url(self, url: bytes) -> None:
        """Add a part of the request's path."""
        super().on_url(url)
        self._count_header(0, len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header or trailer."""
        super().on_header(name, value)
        self._count_header(1, len(name) + len(value))

    def on_headers_complete(self) -> None:
        """Start to answer the request."""
        if len(self.pipeline) >= self._limits.pipelined_requests:
            raise self._reject_with(_TOO_MANY)
        self._body = self._shared.begin_body(self)
        self.app = partial(_run, self._application, partial(self._shared.finish, self._body))
        super().on_headers_complete()
        self._in_body, self._unparsed = True, 0
        self._body_bytes, self._body_began = 0, self.loop.time()
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._unparsed = 0
        self._body_bytes += len(body)
        if self._body_bytes > 4 * self._shared.max_body_bytes + _DISCARDED_BYTES:
            raise self._reject_with(_BODY_TOO_LARGE)
        super().on_body(body)
        if (excess := self._shared.receive(self, len(body))) is not None:
            excess.reject(_UNAVAILABLE)

    def on_message_complete(self) -> None:
        """Record that the request is complete."""
        super().on_message_complete()
        self._body.complete = True
        self._begun = self._in_body = False
        self._unparsed = 0
        self._stop_timer()
        self._shared.set_waiting(self, self._is_idle())

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of a request that was answered early."""
        super().on_response_complete()
        self._shared.answered(self)
        self._shared.set_waiting(self, self._is_idle() or self._begun)
        if self._in_body and self._is_idle() and not self.transport.is_closing():
            self._start_timer(LINGER_SECONDS)

    def pause_writing(self) -> None:
        """Wait for the client, because the transport's write buffer is full."""
        super().pause_writing()
        unread = self.transport.get_write_buffer_size()
        permitted = self._limits.response_seconds + unread / self._limits.body_rate
        self._await_reader(unread + 1, self.loop.time() + permitted)

    def resume_writing(self) -> None:
        """Continue with the response."""
        self._stop_reading_timer()
        super().resume_writing()

    def _await_reader(self, unread: int, deadline: float) -> None:
        """Abort the connection of a client that reads too slowly, or has read nothing since the last call."""
        self._stop_reading_timer()
        left, now = self.transport.get_write_buffer_size(), self.loop.time()
        if left >= unread or now >= deadline:
            self.transport.abort()
        else:
            pause = min(self._limits.response_seconds, deadline - now)
            self._reading_timer = self.loop.call_later(pause, self._await_reader, left, deadline)

    def _stop_reading_timer(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._close()

    def reject(self, status: int) -> None:
        """Respond with an error, without the application, and close the connection."""
        if self.transport.is_closing():
            return
        self._drop_requests()
        content = f'{{"error": "{_REASONS[status]}"}}'.encode()
        headers = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(content)
        self.transport.write(STATUS_LINE[status] + headers + content)
        self._close()

    def _drop_requests(self) -> None:
        """Free what has arrived: the application is told that the client is gone."""
        self._shared.remove(self)
        self.pipeline.clear()
        if not self._is_idle():
            self.cycle.disconnected, self.cycle.body = True, bytearray()
            self.cycle.message_event.set()

    def _is_idle(self) -> bool:
        """Return whether every request so far was answered."""
        return self.cycle is None or self.cycle.response_complete

    def _count_header(self, headers: int, size: int) -> None:
        self._unparsed = 0
        self._header_count += headers
        self._header_bytes += size
        if self._header_bytes > self._limits.header_bytes or self._header_count > self._limits.header_count:
            raise self._reject_with(_HEADERS_TOO_LARGE)

    def _reject_with(self, status: int) -> Exception:
        """Return an error that stops the parser; the request is then rejected with the status."""
        self._rejection = status
        return ValueError(_REASONS[status])

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Close a connection that did not send a request or the rest of one in time."""
        if self._in_body and not self._is_idle():
            permitted = self._limits.body_seconds + self._body_bytes / self._limits.body_rate
            left = self._body_began + permitted - self.loop.time()
            if left > 0:
                self._start_timer(left)
                return
        if self._begun and not (self._in_body and self._is_idle()):
            self.reject(_TIMEOUT)
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection once its client has read the response; abort it if the client stops reading."""
        self.transport.close()
        self._abort_unless_read(self.transport.get_write_buffer_size() + 1)

    def _abort_unless_read(self, unsent: int) -> None:
        left = self.transport.get_write_buffer_size()
        self._stop_timer()
        if left >= unsent:
            self.transport.abort()
        elif left:
            self._timer = self.loop.call_later(LINGER_SECONDS, self._abort_unless_read, left)


async def _run(application: Any, finish: Callable[[], None], scope: Any, receive: Any, send: Any) -> None:
    """Run the application, and record that it has finished with a request, even if the connection was lost."""
    try:
        await application(scope, receive, send)
    finally:
        finish()
