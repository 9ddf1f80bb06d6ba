"""A guard that closes connections to the coordinator.

gRPC keeps a connection open as long as its peer wants, even after its certificate has expired. So a few times a second
a thread closes:

- connections whose certificate has expired or was revoked;
- the older connections of a device that has too many;
- connections without an authenticated call, if there are too many: the oldest of the address with the most go first.

This keeps file descriptors free for established devices. A search for the connections takes three system calls for each
of them, 7 ms for 1,000, during which the thread competes with the event loop. So it is made only if a connection may
have to be closed, which takes 1.3 ms to find out.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from moonfed.coordinator.rpc.sockets import Peer, accepted, network_of, open_files, parse_peer, shut_down
from moonfed.errors import Untrusted
from moonfed.observability.flood_log import FloodLog
from moonfed.transport.identity import Certificate

CHECK_SECONDS = 0.4
HURRY_SECONDS = 0.05  # while connections are being closed
SEARCH_SECONDS = 5.0  # between two searches for the connections, unless there is a reason for one
NEW_FILES = 64  # opened since the last search, which are a reason; fewer if few are left
BUSY_SHARE = 0.05  # of the time may be spent on checks
CONNECTIONS_OF_ONE = 8  # connections of a device, which needs one, and two while it renews its certificate
MAX_PENDING = 2048  # connections without an authenticated call
RESERVED_FILES = 64  # file descriptors that connections cannot use
HANDSHAKE_SECONDS = 10  # for TLS and the first frames of HTTP/2; gRPC's default is 120
ENROLMENT_IDLE_SECONDS, ENROLMENT_SECONDS = 10, 60  # an enrolment is one call
MAX_ENROLMENTS = 128  # connections at once
MAX_STREAMS = 64  # in one connection; a device may have 32 calls under way
Options = tuple[tuple[str, int], ...]
_audit = logging.getLogger("moonfed.coordinator.audit")


def fleet_options(files: int) -> Options:
    """Return gRPC's limits for the port of devices and operators, given the process's limit on open files."""
    return _options(max(1, files - RESERVED_FILES - _enrolments(files)), MAX_STREAMS)


def enrolment_options(files: int) -> Options:
    """Return gRPC's limits for the enrolment port, where anybody may connect."""
    return (
        *_options(_enrolments(files), 1),
        ("grpc.max_connection_idle_ms", ENROLMENT_IDLE_SECONDS * 1000),
        ("grpc.max_connection_age_ms", ENROLMENT_SECONDS * 1000),
        ("grpc.max_connection_age_grace_ms", ENROLMENT_IDLE_SECONDS * 1000),
    )


def _enrolments(files: int) -> int:
    return max(1, min(MAX_ENROLMENTS, (files - RESERVED_FILES) // 4))


def _options(connections: int, streams: int) -> Options:
    return (
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", streams),
    )


@dataclass(slots=True)
class _Established:
    """A connection that has made authenticated calls; `certificate` is None without TLS."""

    certificate: Certificate | None
    last_call: float


class ConnectionGuard:
    """Closes connections to the given ports. `rejection` returns an error if a certificate is no longer accepted."""

    def __init__(
        self,
        file_limit: int,
        rejection: Callable[[Certificate], Untrusted | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file_limit = file_limit
        self._rejection = rejection
        self._clock = clock
        self._ports: Collection[int] = ()
        self._established: dict[Peer, _Established] = {}
        self._pending: dict[Peer, None] = {}  # the oldest first
        self._next_search, self._files = 0.0, 0  # when to search at the latest; open files at the last search
        self._log = FloodLog(_audit, clock)
        self._stopped, self._awake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="connections", daemon=True)

    def start(self, ports: Collection[int]) -> None:
        """Guard the connections to these ports."""
        self._ports = ports
        self._thread.start()

    def stop(self) -> None:
        """Stop guarding, if it has started."""
        self._stopped.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join()

    async def check_again(self, _registry: object) -> None:
        """Check the connections now rather than later: the registry has changed."""
        self._awake.set()

    def authenticated(self, peer: str, certificate: Certificate | None) -> None:
        """Note an authenticated call."""
        if parsed := parse_peer(peer):
            self._established[parsed] = _Established(certificate, self._clock())

    def close(self, peer: str, reason: str, level: int = logging.WARNING) -> None:
        """Close a connection, which ends all its calls."""
        if parsed := parse_peer(peer):
            self._close(accepted(self._ports)[0], {parsed: reason}, level)

    def is_due(self) -> bool:
        """Return whether `check` may find an unwanted connection, or has not searched for a while."""
        established = dict(self._established)
        return bool(
            self._clock() >= self._next_search
            or open_files() > self._files + min(NEW_FILES, (self._file_limit - self._files) // 8)
            or self._rejected(established)
            or _of_greedy_devices(established)
        )

    def check(self) -> bool:
        """Close unwanted connections; return whether there were any."""
        known = list(self._established)
        found, self._files = accepted(self._ports)
        for peer in known:
            if peer not in found:
                self._established.pop(peer, None)
        established = {peer: self._established[peer] for peer in found if peer in self._established}
        pending = [peer for peer in found if peer not in established]
        self._pending = {peer: None for peer in self._pending if peer in found and peer not in established}
        self._pending.update(dict.fromkeys(pending))
        room = min(MAX_PENDING, (self._file_limit - self._files + len(pending)) // 2)
        unwanted = self._rejected(established)
        unwanted |= dict.fromkeys(_of_greedy_devices(established), "its device has too many connections")
        unwanted |= dict.fromkeys(surplus(self._pending, room), "too many connections have made no call")
        self._close(found, unwanted)
        self._next_search = self._clock() + (0.0 if unwanted else SEARCH_SECONDS)  # others may replace them at once
        return bool(unwanted)

    def _rejected(self, established: dict[Peer, _Established]) -> dict[Peer, str]:
        found = {}
        for peer, one in established.items():
            if one.certificate and (reason := self._rejection(one.certificate)):
                found[peer] = str(reason)
        return found

    def _close(self, found: dict[Peer, int], unwanted: dict[Peer, str], level: int = logging.WARNING) -> None:
        for peer, reason in unwanted.items():
            if peer in found:
                self._log.write(level, peer[0], "closing a connection from %s:%d: %s", *peer, reason)
                shut_down(found[peer], peer, self._ports)

    def _run(self) -> None:
        wait = CHECK_SECONDS
        while not self._wait(wait):
            began = time.monotonic()
            try:
                hurry = self.is_due() and self.check()
            except Exception:
                _audit.exception("cannot check the connections")
                hurry = False
            self._log.summarise()
            wait = max(HURRY_SECONDS if hurry else CHECK_SECONDS, (time.monotonic() - began) / BUSY_SHARE)

    def _wait(self, seconds: float) -> bool:
        """Wait for the next check; return whether to stop."""
        self._awake.wait(seconds)
        self._awake.clear()
        return self._stopped.is_set()


def surplus(pending: Iterable[Peer], room: int) -> list[Peer]:
    """Return the connections to close so that at most `room` remain, and at most half as many of one address.

    `pending` are all connections, the oldest first. The oldest of the address with the most are closed first; among
    addresses with equally many, the oldest of all. An IPv6 /64 network counts as one address, because one host can use
    all of it.
    """
    by_address: defaultdict[str, deque[tuple[int, Peer]]] = defaultdict(deque)
    for age, peer in enumerate(pending):
        by_address[network_of(peer[0])].append((age, peer))
    largest = [(-len(peers), peers[0][0], address) for address, peers in by_address.items()]
    heapq.heapify(largest)
    total, found = sum(map(len, by_address.values())), []
    while largest and (total > room or -largest[0][0] > max(1, room // 2)):
        number, _, address = heapq.heappop(largest)
        peers = by_address[address]
        found.append(peers.popleft()[1])
        total -= 1
        if peers:
            heapq.heappush(largest, (number + 1, peers[0][0], address))
    return found


def _of_greedy_devices(established: dict[Peer, _Established]) -> list[Peer]:
    """Return each device's connections beyond CONNECTIONS_OF_ONE, the least recently used ones."""
    by_device: defaultdict[str, list[tuple[float, Peer]]] = defaultdict(list)
    for peer, one in established.items():
        if one.certificate and one.certificate.kind == "device":
            by_device[one.certificate.name].append((one.last_call, peer))
    return [peer for calls in by_device.values() for _, peer in sorted(calls)[:-CONNECTIONS_OF_ONE]]
