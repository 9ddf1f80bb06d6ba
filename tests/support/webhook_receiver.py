"""A receiver of webhooks in the test's process: a real HTTP server on loopback that remembers what it got."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = bytes(range(32))
WAIT = 60.0  # seconds after which a test gives up


@dataclass
class Receiving:
    """Messages as they come, with their headers. `answers`: the statuses of the next ones, 204 after them."""

    port: int
    messages: queue.Queue[tuple[dict[str, str], bytes]] = field(default_factory=queue.Queue)
    answers: list[int] = field(default_factory=list)
    hanging: threading.Event | None = None  # answers come once it is set

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/private-path"

    def next(self) -> dict[str, Any]:
        """Return the next message, whose signature must be right."""
        headers, body = self.messages.get(timeout=WAIT)
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        message = json.loads(body)
        assert isinstance(message, dict)
        assert message["id"] == headers["webhook-id"]
        return message


@contextmanager
def receiving(port: int = 0, *answers: int, hanging: threading.Event | None = None) -> Iterator[Receiving]:
    received = Receiving(0, answers=list(answers), hanging=hanging)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.messages.put(({name.lower(): value for name, value in self.headers.items()}, body))
            if received.hanging:
                received.hanging.wait(WAIT)
            self.send_response(received.answers.pop(0) if received.answers else 204)
            if self.path.startswith("/moved"):
                self.send_header("location", received.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    received.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield received
    finally:
        if hanging:
            hanging.set()
        server.shutdown()
        server.server_close()
        thread.join()
