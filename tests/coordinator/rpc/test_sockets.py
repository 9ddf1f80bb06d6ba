"""The accepted connections among this process's file descriptors."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from moonfed.coordinator.rpc.sockets import accepted, file_limit, network_of, parse_peer, shut_down


@dataclass
class Connection:
    """The client's end of a connection to this process."""

    socket: socket.socket

    @property
    def name(self) -> str:
        """The connection's name as gRPC gives it."""
        host, port = self.socket.getsockname()[:2]
        return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def is_closed(self) -> bool:
        self.socket.settimeout(0.0)
        try:
            return not self.socket.recv(1)
        except BlockingIOError:
            return False


class Listener:
    """A server in this process."""

    def __init__(self, stack: ExitStack, family: socket.AddressFamily = socket.AF_INET) -> None:
        self._stack, self._family = stack, family
        self._socket = stack.enter_context(socket.create_server(("", 0), family=family, dualstack_ipv6=family != 2))
        self.port = self._socket.getsockname()[1]

    def connect(self, host: str = "127.0.0.1") -> Connection:
        client = self._stack.enter_context(socket.create_connection((host, self.port)))
        self._stack.enter_context(self._socket.accept()[0])
        return Connection(client)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_only_connections_to_the_given_ports_are_found(stack: ExitStack) -> None:
    ours, other = Listener(stack), Listener(stack)
    connections = [ours.connect() for _ in range(3)]
    other.connect()
    found, files = accepted([ours.port])
    assert set(found) == {parse_peer(connection.name) for connection in connections}
    assert files >= 10


def test_a_peer_has_the_same_name_for_grpc_and_for_the_kernel(stack: ExitStack) -> None:
    listener = Listener(stack, socket.AF_INET6)
    for host in ("127.0.0.1", "::1"):
        connection = listener.connect(host)
        assert parse_peer(connection.name) in accepted([listener.port])[0]
    assert parse_peer("ipv6:%5B::ffff:10.0.0.7%5D:51234") == ("10.0.0.7", 51234)
    assert parse_peer("ipv6:%5Bfe80::1%25eth0%5D:51234") == ("fe80::1", 51234)
    assert parse_peer("unix:/run/socket") is None


def test_only_the_named_connection_is_shut_down(stack: ExitStack) -> None:
    listener = Listener(stack)
    first, second = listener.connect(), listener.connect()
    names = [parse_peer(connection.name) for connection in (first, second)]
    found = accepted([listener.port])[0]
    assert names[0]
    assert names[1]
    shut_down(found[names[0]], names[1], [listener.port])  # the descriptor is another one's by now
    shut_down(1 << 20, names[1], [listener.port])
    assert not first.is_closed()
    shut_down(found[names[0]], names[0], [listener.port])
    assert first.is_closed()
    assert not second.is_closed()
    assert set(accepted([listener.port])[0]) >= {names[1]}, "and stays open here"


def test_connections_are_found_when_no_descriptor_is_left(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(stack)
    connection = listener.connect()

    def none_left(_: str) -> list[str]:
        raise OSError("Too many open files")

    monkeypatch.setattr(os, "listdir", none_left)
    assert set(accepted([listener.port])[0]) == {parse_peer(connection.name)}


def test_the_file_limit_is_raised_as_far_as_the_user_may() -> None:
    code = (
        "from moonfed.coordinator.rpc.sockets import *; import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200)); raise_file_limit(); print(file_limit())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "200\n"
    assert file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("[2001:db8:0:1:ffff::9]", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::zz", "::zz"),
    ],
)
def test_one_host_has_a_whole_ipv6_network(address: str, network: str) -> None:
    assert network_of(address) == network
