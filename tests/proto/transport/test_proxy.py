"""Proxy selection as in gRPC, and messages about proxies that do not work."""

from __future__ import annotations

import socket
import threading

import grpc
import pytest

from moonfed.errors import InvalidInput, Unavailable
from moonfed.transport import client as transport
from moonfed.transport import proxy
from moonfed.transport.diagnosis import explain_unavailable
from moonfed.transport.proxy import Proxy, ignore_proxy_exceptions, open_tunnel, parse_proxy, proxy_between
from tests.support.http_proxy import ConnectProxy

HOST = "coordinator.invalid"  # by RFC 2606 no name server knows it: only a proxy can
VARIABLES = (*proxy.VARIABLES, *proxy.EXCEPTIONS)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://proxy.example.org:3128", Proxy("proxy.example.org", 3128)),
        ("http://10.0.0.1:8080/", Proxy("10.0.0.1", 8080)),
        ("http://[::1]:8080", Proxy("::1", 8080)),
        ("http://me:p%40ss@proxy:3128", Proxy("proxy", 3128, "me:p@ss")),
    ],
)
def test_a_proxys_url(url: str, read: Proxy) -> None:
    assert parse_proxy(url) == read


@pytest.mark.parametrize(
    "url",
    ["", "proxy:3128", "https://proxy:3128", "http://proxy", "http://:3128", "http://me:secret@proxy:port",
     "http://proxy:3128/path", "socks5://me:secret@proxy:1080", "me:secret@proxy:3128"],
)  # fmt: skip
def test_an_invalid_proxy_is_rejected_without_its_password(url: str) -> None:
    with pytest.raises(InvalidInput, match="it must be http://HOST:PORT") as rejected:
        parse_proxy(url)
    assert "secret" not in str(rejected.value)


def test_a_proxy_prints_without_its_password() -> None:
    assert str(parse_proxy("http://me:secret@proxy:3128")) == "proxy:3128"
    assert str(parse_proxy("http://[::1]:8080")) == "[::1]:8080"


CASES = [
    ({}, False, False),
    ({}, True, True),
    ({"https_proxy": "URL"}, False, True),
    ({"http_proxy": "URL"}, False, True),
    ({"grpc_proxy": "URL"}, False, True),
    ({"HTTPS_PROXY": "URL"}, False, False),
    ({"https_proxy": "socks5://127.0.0.1:1"}, False, False),
    ({"https_proxy": "URL", "no_proxy": HOST}, False, False),
    ({"https_proxy": "URL", "no_proxy": "example.org, .invalid"}, False, False),
    ({"https_proxy": "URL", "no_proxy": "INVALID"}, False, False),
    ({"https_proxy": "URL", "no_proxy": "other.invalid,10.0.0.0/8,*"}, False, True),
    ({"https_proxy": "URL", "no_proxy": HOST, "no_grpc_proxy": "example.org"}, False, True),
    ({"no_proxy": HOST}, True, False),
    ({"no_proxy": HOST, **ignore_proxy_exceptions()}, True, True),
]


@pytest.mark.parametrize(("environment", "option", "through"), CASES)
def test_we_select_the_same_proxy_as_grpc(
    environment: dict[str, str], option: bool, through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy(status=403) as server:
        url = f"http://{server.address}"
        for name, value in environment.items():
            monkeypatch.setenv(name, value.replace("URL", url))
        chosen = url if option else ""
        with grpc.insecure_channel(f"{HOST}:7443", transport.client_options(chosen)) as channel:
            call = channel.unary_unary("/no/method", None, None)
            with pytest.raises(grpc.RpcError):
                call(b"", timeout=2)
        assert bool(server.asked) == through
        assert (proxy_between(HOST, chosen) is not None) == through


def test_networks_are_excepted_by_address() -> None:
    environment = {"https_proxy": "http://proxy:3128", "no_proxy": "192.168.0.0/16"}
    assert proxy_between("192.168.7.7", "", environment) is None
    assert proxy_between("10.7.7.7", "", environment) == Proxy("proxy", 3128)


def test_a_tunnel_carries_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ConnectProxy(password="me:secret") as server:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        with open_tunnel(parse_proxy(f"http://me:secret@{server.address}"), target, 5.0) as tunnel:
            tunnel.sendall(b"hello")
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(5) == b"hello"
                connection.sendall(b"there")
                assert tunnel.recv(5) == b"there"


@pytest.mark.parametrize(
    ("password", "status", "message"),
    [
        ("other:secret", 200, r"the proxy at \S+ rejects this password \(407\)"),
        ("", 403, r"the proxy at \S+ refuses to connect to coordinator.invalid:7443: status 403"),
        ("", 502, "status 502"),
    ],
)
def test_a_proxy_that_rejects_is_explained(password: str, status: int, message: str) -> None:
    with ConnectProxy(password=password, status=status) as server:
        reason = explain_unavailable(f"{HOST}:7443", None, f"http://me:wrong@{server.address}")
    assert isinstance(reason, Unavailable)
    with pytest.raises(Unavailable, match=message):
        raise reason
    assert "wrong" not in str(reason)


def test_a_proxy_that_asks_for_a_password_is_explained() -> None:
    with ConnectProxy(password="me:secret") as server:
        reason = explain_unavailable(f"{HOST}:7443", None, f"http://{server.address}")
        asks = f"the proxy at {server.address} requires a password (407); give it as http://USER:PASSWORD@HOST:PORT"
    assert str(reason) == asks


def test_an_unreachable_proxy_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    reason = explain_unavailable(f"{HOST}:7443", None, f"http://127.0.0.1:{port}")
    assert str(reason) == f"the proxy at 127.0.0.1:{port} cannot be reached: Connection refused"


def test_a_server_that_is_not_a_proxy_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        port = listener.getsockname()[1]
        address = Proxy("127.0.0.1", port)

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example.org ESMTP\r\n\r\n")

        threading.Thread(target=answer).start()
        with pytest.raises(Unavailable, match="does not answer as an HTTP proxy does"):
            open_tunnel(address, f"{HOST}:7443", 5.0)
