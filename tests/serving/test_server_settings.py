"""Settings of a server: each wrong one is rejected when they are built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moonfed.errors import InvalidInput
from moonfed.serving.server_settings import ServerSettings

ANY_ADDRESS = "0.0.0.0"
KEY = {"tls_key": Path("key.pem"), "tls_certificate": Path("certificate.pem")}


def settings(**fields: Any) -> ServerSettings:
    return ServerSettings(repository=Path("models"), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grpc_port": -1}, "grpc_port is -1; it must be"),
        ({"http_port": 65536}, "http_port is 65536; it must be"),
        (
            {"grpc_port": 9, "http_port": 9},
            "grpc_port, http_port and metrics_port are 9, 9 and 8002; they must be three different ports",
        ),
        ({"tls_key": Path("key.pem")}, "tls_key and tls_certificate must be given together, or neither"),
        ({"tls_certificate": Path("c.pem")}, "tls_key and tls_certificate must be given together, or neither"),
        ({"tls_client_ca": Path("ca.pem")}, "tls_client_ca is given without tls_key and tls_certificate; it needs"),
        ({"host": ANY_ADDRESS}, "host is '0.0.0.0', which other machines can reach; it must be combined with"),
        ({"host": "server.local", **KEY}, "host is 'server.local', which other machines can reach"),
        ({"max_request_bytes": 0}, "max_request_bytes is 0; it must be 1 or more"),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests is 0; it must be 1 or more"),
        ({"drain_seconds": -1.0}, "drain_seconds is -1.0; it must be from 0 to 3600"),
        ({"drain_seconds": float("nan")}, "drain_seconds is nan; it must be from 0 to 3600"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_setting_is_rejected_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        settings(**fields)
    assert str(error.value).startswith(message)


def test_free_ports_may_all_be_chosen_by_the_system() -> None:
    settings(grpc_port=0, http_port=0, metrics_port=0)


@pytest.mark.parametrize("fields", [{"api_key_file": Path("keys")}, {"tls_client_ca": Path("ca.pem"), **KEY}])
def test_other_machines_may_connect_with_authentication(fields: dict[str, Path]) -> None:
    assert not settings(host=ANY_ADDRESS, **fields).is_local


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_loopback_addresses_are_local(host: str) -> None:
    assert settings(host=host).is_local
