"""One attack: `python -m benchmarks.load.attackers KIND ADDRESS TOKEN DIRECTORY DEVICE SHA256`.

Prints `attacking` once the attack has begun, and continues until standard input is closed.
"""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from moonfed.transport.client import parse_address
from moonfed.transport.identity import load_identity
from moonfed.transport.join_token import parse_token
from moonfed.v1 import blob_pb2, enrolment_pb2, enrolment_pb2_grpc, fleet_pb2_grpc
from moonfed.version import CONTRACT_VERSION

DOWNLOADS = 24  # concurrent downloads; a device may have 32 calls
SOCKETS = 1000
GUESSES_PER_SECOND, GUESSES_PER_CONNECTION = 1000, 400
CHECK_SECONDS = 0.05  # between two checks for closed connections
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The coordinator, an enrolled device of the attacker's, and a blob that it may fetch."""

    address: str
    token: str
    identity: Path
    device: str
    sha256: str


def stall_downloads(target: Target, attacking: Callable[[], bool], begun: Callable[[], object]) -> None:
    """Fetch a blob many times and read nothing."""
    identity = load_identity(target.identity)
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    with grpc.secure_channel(target.address, credentials, OPTIONS) as channel:
        fleet = fleet_pb2_grpc.FleetStub(channel)
        request = blob_pb2.FetchRequest(device=target.device, sha256=target.sha256)
        calls = [fleet.Fetch(request) for _ in range(DOWNLOADS)]
        begun()
        while attacking():
            calls = [call if call.is_active() else fleet.Fetch(request) for call in calls]


def guess_tokens(target: Target, attacking: Callable[[], bool], begun: Callable[[], object]) -> None:
    """Guess join tokens, over a new connection every few hundred calls."""
    token = parse_token(target.token)
    guess = enrolment_pb2.EnrolRequest(
        secret=secrets.token_urlsafe(), device="guesser", contract_version=CONTRACT_VERSION
    )
    begun()
    while attacking():
        with grpc.secure_channel(token.address, grpc.ssl_channel_credentials(token.ca), OPTIONS) as channel:
            stub = enrolment_pb2_grpc.EnrolmentStub(channel)
            for _ in range(GUESSES_PER_CONNECTION):
                time.sleep(1 / GUESSES_PER_SECOND)
                with suppress(grpc.RpcError):
                    stub.Enrol(guess)


def hold_silent_sockets(target: Target, attacking: Callable[[], bool], begun: Callable[[], object]) -> None:
    """Open connections, send nothing, and replace those that are closed."""
    address = parse_address(target.address)
    sockets = [silent_connection(address) for _ in range(SOCKETS)]
    begun()
    while attacking():
        for position, held in enumerate(sockets):
            if is_closed(held):
                held.close()
                sockets[position] = silent_connection(address)


def silent_connection(address: tuple[str, int]) -> socket.socket:
    """Connect, and send nothing."""
    held = socket.create_connection(address)
    held.setblocking(False)
    return held


def is_closed(held: socket.socket) -> bool:
    """Return whether the other side has closed a silent connection."""
    try:
        return not held.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


ATTACKS = {"downloads": stall_downloads, "guesses": guess_tokens, "silence": hold_silent_sockets}


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main() -> None:
    kind, address, token, identity, device, sha256 = sys.argv[1:]
    target = Target(address=address, token=token, identity=Path(identity), device=device, sha256=sha256)
    ended = threading.Event()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    ATTACKS[kind](target, lambda: not ended.wait(CHECK_SECONDS), lambda: print("attacking", flush=True))


if __name__ == "__main__":
    main()
