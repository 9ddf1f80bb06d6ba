"""The connection guard: its choice of connections to close, and their order."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from moonfed.coordinator.rpc import connections
from moonfed.coordinator.rpc.connections import (
    CONNECTIONS_OF_ONE,
    RESERVED_FILES,
    ConnectionGuard,
    enrolment_options,
    fleet_options,
    surplus,
)
from moonfed.coordinator.rpc.sockets import accepted
from moonfed.errors import Untrusted
from moonfed.transport.identity import Certificate
from tests.coordinator.rpc.test_sockets import Listener
from tests.support.clock import Clock


def certificate(name: str, role: str = "device") -> Certificate:
    return Certificate(kind="operator" if role == "operator" else "device", name=name, serial="1f", expires=0.0)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with ExitStack() as stack:
        yield Listener(stack)


def guard(listener: Listener, *, rejected: tuple[str, ...] = ()) -> ConnectionGuard:
    made = ConnectionGuard(1 << 20, lambda found: Untrusted("it is rejected") if found.name in rejected else None)
    made._ports = [listener.port]
    return made


def test_without_need_no_connection_is_closed() -> None:
    assert surplus([("10.0.0.1", port) for port in range(50)], room=100) == []
    assert surplus([], room=0) == []


def test_an_address_has_at_most_half_of_the_room_and_loses_its_oldest_connections() -> None:
    greedy, other = [("10.0.0.1", port) for port in range(60)], [("10.0.0.2", port) for port in range(5)]
    assert surplus([*other, *greedy], room=100) == greedy[:10]


def test_the_addresses_with_the_most_connections_lose_first() -> None:
    pending = [(f"10.0.0.{address}", port) for address in (3, 5, 1, 4, 2) for port in range(address)]
    closed = surplus(pending, room=10)
    assert len(closed) == 5
    left = Counter(address for address, _ in set(pending) - set(closed))
    assert sorted(left.values()) == [1, 2, 2, 2, 3]


def test_a_new_connection_beats_older_ones_of_many_addresses() -> None:
    """An honest device must be admitted while somebody holds one connection from each of many addresses."""
    pending = [(f"10.9.0.{number}", 1) for number in range(100)]
    newest = ("10.0.0.1", 1)
    assert surplus([*pending, newest], room=20) == pending[:81]


def test_the_addresses_of_an_ipv6_network_are_one() -> None:
    greedy = [(f"2001:db8:0:1::{number:x}", 1) for number in range(60)]
    other = [("2001:db8:0:2::1", port) for port in range(5)]
    assert surplus([*other, *greedy], room=100) == greedy[:10]


def test_a_new_connection_beats_older_ones_of_its_address() -> None:
    """An honest device behind the same router must be admitted."""
    pending = [("10.0.0.1", port) for port in range(100)]
    assert pending[-1] not in surplus(pending, room=20)


def test_connections_of_rejected_certificates_are_closed(listener: Listener) -> None:
    rejected, accepted = listener.connect(), listener.connect()
    guarded = guard(listener, rejected=("cam-1",))
    guarded.authenticated(rejected.name, certificate("cam-1"))
    guarded.authenticated(accepted.name, certificate("cam-2"))
    assert guarded.check()
    assert rejected.is_closed()
    assert not accepted.is_closed()


def test_connections_are_searched_for_only_with_a_reason(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rejected = Clock(), set[str]()
    guarded = ConnectionGuard(1 << 20, lambda one: Untrusted("it is rejected") if one.name in rejected else None, clock)
    guarded._ports = [listener.port]
    connection = listener.connect()
    guarded.authenticated(connection.name, certificate("cam-1"))
    files = 100  # this process opens and closes others meanwhile
    monkeypatch.setattr(connections, "open_files", lambda: files)
    monkeypatch.setattr(connections, "accepted", lambda ports: (accepted(ports)[0], files))

    def searched() -> bool:
        due = guarded.is_due()
        assert not (due and guarded.check())
        return due

    assert [searched(), searched()] == [True, False], "at the start"
    clock.now += connections.SEARCH_SECONDS
    assert [searched(), searched()] == [True, False], "after a while"
    monkeypatch.setattr(connections, "NEW_FILES", 5)
    kept = [listener.connect() for _ in range(3)]
    files += 2 * len(kept)
    assert [searched(), searched()] == [True, False], "there are many more files"
    rejected.add("cam-1")
    assert guarded.is_due()
    assert guarded.check()
    assert connection.is_closed()
    assert not any(each.is_closed() for each in kept)
    for each in [listener.connect() for _ in range(CONNECTIONS_OF_ONE + 1)]:
        guarded.authenticated(each.name, certificate("cam-2"))
    assert guarded.is_due(), "a device has too many connections"


def test_a_device_keeps_its_most_recent_connections_and_an_operator_all(listener: Listener) -> None:
    clock = iter(range(1000))
    guarded = ConnectionGuard(1 << 20, lambda _: None, lambda: next(clock))
    guarded._ports = [listener.port]
    device, operator = ([listener.connect() for _ in range(CONNECTIONS_OF_ONE + 2)] for _ in range(2))
    for connection in device:
        guarded.authenticated(connection.name, certificate("cam-1"))
    for connection in operator:
        guarded.authenticated(connection.name, certificate("operator", "operator"))
    guarded.authenticated(device[0].name, certificate("cam-1"))
    guarded.check()
    assert [connection.is_closed() for connection in device] == [False, True, True] + [False] * (len(device) - 3)
    assert not any(connection.is_closed() for connection in operator)


def test_connections_without_a_call_leave_room_for_those_with_one(listener: Listener) -> None:
    guarded = guard(listener)
    established = listener.connect()
    guarded.authenticated(established.name, certificate("cam-1"))
    older = [listener.connect() for _ in range(23)]
    assert not guarded.check()
    newest = [listener.connect() for _ in range(7)]
    _, guarded._file_limit = accepted([])  # so there is capacity for 15 of 30, and 7 of one address
    assert guarded.check()
    assert not established.is_closed()
    assert [connection.is_closed() for connection in older] == [True] * 23
    assert [connection.is_closed() for connection in newest] == [False] * 7


def test_connections_without_a_call_are_few_however_many_files_may_be_open(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_PENDING", 10)
    pending = [listener.connect() for _ in range(30)]
    assert guard(listener).check()
    assert sum(not connection.is_closed() for connection in pending) == 5, "half of ten, for one address"


def test_a_connection_is_closed_by_its_name(listener: Listener) -> None:
    first, second = listener.connect(), listener.connect()
    guarded = guard(listener)
    guarded.close(first.name, "it does not read")
    guarded.close("unix:/run/socket", "it has no address")
    assert first.is_closed()
    assert not second.is_closed()


def test_grpc_leaves_files_for_everything_else() -> None:
    limits = [
        dict(options(300))["grpc.max_allowed_incoming_connections"] for options in (fleet_options, enrolment_options)
    ]
    assert limits == [177, 59]
    assert sum(limits) + RESERVED_FILES == 300
    fleet, enrolment = (dict(options(300)) for options in (fleet_options, enrolment_options))
    assert fleet["grpc.server_handshake_timeout_ms"] == enrolment["grpc.server_handshake_timeout_ms"] <= 30_000
    assert 32 <= fleet["grpc.max_concurrent_streams"] <= 128, "a device's calls at once, and some"
    assert enrolment["grpc.max_concurrent_streams"] == 1
    assert enrolment["grpc.max_connection_idle_ms"] <= enrolment["grpc.max_connection_age_ms"] <= 60_000
    assert all(value >= 1 for options in (fleet_options, enrolment_options) for _, value in options(10))


def test_a_guard_that_is_woken_checks_at_once(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", 3600.0)
    rejected = listener.connect()
    guarded = guard(listener, rejected=("cam-1",))
    guarded.authenticated(rejected.name, certificate("cam-1"))
    guarded.start([listener.port])
    asyncio.run(guarded.check_again(None))
    while not rejected.is_closed():
        time.sleep(0.01)
    guarded.stop()


def test_connections_that_have_ended_are_forgotten(listener: Listener) -> None:
    guarded = guard(listener)
    for number in range(3):
        guarded.authenticated(f"ipv4:10.0.0.7:{5000 + number}", certificate("cam-1"))
    guarded.check()
    assert not guarded._established


def test_the_connections_are_checked_often_and_in_little_of_the_time(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check takes the longer, the more connections there are."""
    guarded, clock, waits = guard(listener), Clock(), list[float]()
    checks = [(0.0, False), (0.0, True), (1.0, False), (1.0, True)]  # seconds, and if connections were closed

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > len(checks)

    def check() -> bool:
        seconds, closed = checks[len(waits) - 1]
        clock.now += seconds
        return closed

    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(guarded, "_wait", wait)
    monkeypatch.setattr(guarded, "check", check)
    guarded._run()
    usual, again, hurried, *long = waits
    assert usual == again <= 0.5, "an expired certificate's connection ends within a second"
    assert hurried <= 0.1
    assert long == [20.0, 20.0]


def test_the_guards_thread_survives_an_error(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.01)
    guarded = ConnectionGuard(1 << 20, lambda _: Untrusted("it is rejected"))
    checks, check = [], guarded.check

    def failing() -> bool:
        checks.append(1)
        if len(checks) < 3:
            raise ValueError("no")
        return check()

    monkeypatch.setattr(guarded, "check", failing)
    connection = listener.connect()
    guarded.authenticated(connection.name, certificate("cam-1"))
    guarded.start([listener.port])
    connection.socket.settimeout(20.0)
    assert connection.socket.recv(1) == b""
    guarded.stop()
    assert len(checks) >= 3
    assert isinstance(connection.socket, socket.socket)
