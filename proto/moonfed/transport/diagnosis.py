"""Diagnosis of a coordinator that cannot be reached.

gRPC reports every failure to connect as UNAVAILABLE, even a certificate that will never be accepted. So this module
performs the TLS handshake itself before a call is retried.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TypeVar

from moonfed.errors import MoonfedError, Unavailable, Untrusted, WrongServer
from moonfed.transport.client import parse_address
from moonfed.transport.identity import CERTIFICATE_FILE, KEY_FILE, Identity
from moonfed.transport.proxy import open_tunnel, proxy_between

PROBE_SECONDS = 5.0
RECHECK_SECONDS = 1.0
# What OpenSSL calls X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
WRONG_CLOCK = {
    9: "before the certificates of the coordinator at {} become valid",
    10: "after the certificates of the coordinator at {} have expired",
}
JOIN_TOKEN = "join token"  # noqa: S105 - the credential of a caller without a certificate

T = TypeVar("T")


def explain_unavailable(address: str, identity: Identity | None, proxy: str = "") -> MoonfedError:
    """Explain why a call failed with UNAVAILABLE: Untrusted if retrying is pointless, else Unavailable."""
    if identity is None:
        return _explain(address, None, None, proxy)
    context = ssl.create_default_context(cadata=identity.ca.decode())
    context.load_cert_chain(identity.directory / CERTIFICATE_FILE, identity.directory / KEY_FILE)
    return _explain(address, context, identity, proxy)


def explain_enrolment_unavailable(address: str, ca: bytes, proxy: str = "") -> MoonfedError:
    """Explain why an enrolment call failed with UNAVAILABLE; `ca`: the join token's authority (PEM)."""
    return _explain(address, ssl.create_default_context(cadata=ca.decode()), None, proxy)


def _explain(address: str, context: ssl.SSLContext | None, identity: Identity | None, proxy: str) -> MoonfedError:
    reason = _diagnose(address, context, identity, proxy)
    if isinstance(reason, Untrusted):  # a coordinator that is shutting down looks the same: check again
        time.sleep(RECHECK_SECONDS)
        reason = _diagnose(address, context, identity, proxy)
    return reason


def _connect(address: str, proxy: str) -> socket.socket:
    """Return a connection as gRPC would make it, through the same proxy; Unavailable gives the obstacle."""
    host, port = parse_address(address)
    between = proxy_between(host, proxy)
    if between:
        return open_tunnel(between, address, PROBE_SECONDS)
    try:
        return socket.create_connection((host, port), PROBE_SECONDS)
    except OSError as error:
        raise Unavailable(
            f"the coordinator at {address} cannot be reached: {error.strerror or error}",
            field="coordinator",
            value=address,
        ) from error


def _diagnose(address: str, context: ssl.SSLContext | None, identity: Identity | None, proxy: str) -> MoonfedError:
    host, _ = parse_address(address)
    try:
        raw = _connect(address, proxy)
    except Unavailable as reason:
        return reason
    with raw:
        if context is None:
            return Unavailable(
                f"the server at {address} did not answer; is it a coordinator that runs with --insecure?"
            )
        context.set_alpn_protocols(["h2"])
        return _probe(raw, context, host, address, identity)


def _probe(
    raw: socket.socket, context: ssl.SSLContext, host: str, address: str, identity: Identity | None
) -> MoonfedError:
    # Not wrap_socket: CPython's leaves a socket open that is reset before its handshake.
    arrived, departing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(arrived, departing, server_hostname=host)
    try:
        _exchange(raw, arrived, departing, secured.do_handshake)
        try:
            # TLS 1.3 reports a rejected client certificate only after the handshake.
            answer = _exchange(raw, arrived, departing, lambda: secured.read(1))
        except (ssl.SSLError, ConnectionResetError):
            answer = b""
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in WRONG_CLOCK:  # an unset clock, as after booting without a battery, or one that jumps
            validity = WRONG_CLOCK[error.verify_code].format(address)
            return Unavailable(
                f"this machine's clock says {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, which is {validity}; "
                "set the clock"
            )
        mine = "identity" if identity else JOIN_TOKEN
        return WrongServer(
            f"the server at {address} cannot prove that it is the coordinator that this {mine} belongs to: "
            f"{error.verify_message}"
        )
    except (ssl.SSLEOFError, ConnectionResetError, TimeoutError) as error:
        return Unavailable(f"the connection to the coordinator at {address} failed: {_reason(error)}")
    except ssl.SSLError as error:
        return WrongServer(f"the server at {address} did not complete a TLS handshake: {_reason(error)}")
    except OSError as error:
        return Unavailable(f"the connection to the coordinator at {address} failed: {error}")
    return _after_handshake(address, identity, silent=not answer)


def _exchange(raw: socket.socket, arrived: ssl.MemoryBIO, departing: ssl.MemoryBIO, step: Callable[[], T]) -> T:
    """Run one step of TLS while moving its bytes through the socket."""
    while True:
        try:
            result = step()
        except ssl.SSLWantReadError:  # noqa: PERF203 - each turn waits for the peer
            raw.sendall(departing.read())
            if received := raw.recv(16384):
                arrived.write(received)
            else:
                arrived.write_eof()
        else:
            raw.sendall(departing.read())
            return result


def _after_handshake(address: str, identity: Identity | None, *, silent: bool) -> MoonfedError:
    """Interpret silence after the handshake: the server rejects the certificate, or the connection broke just then.

    gRPC rejects without a reason, so give up for good only if the reason can be established here.
    """
    if not silent:
        return Unavailable(f"the coordinator at {address} is reachable but did not answer the call")
    if identity is None:
        return Untrusted(f"the server at {address} asks for a certificate; enrolment has its own port")
    if rejection := identity.rejection:
        return Untrusted(f"the coordinator at {address} rejected this certificate: {rejection}")
    return Unavailable(
        f"the coordinator at {address} closed the connection after the handshake; "
        "if that persists, compare this machine's clock with the coordinator's"
    )


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or str(error)
