"""A console that others could reach starts only with TLS and a login."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moonfed.coordinator.console.settings import EVERYWHERE, ConsoleSettings
from moonfed.errors import InvalidInput

TLS = {"certificate": Path("c.pem"), "key": Path("k.pem")}
PASSWORDS = {"password_file": Path("passwords")}
PROXY = {"trusted_proxy": "10.0.0.2", "user_header": "X-Remote-User", "proxy_secret_file": Path("secret")}


def settings(**fields: Any) -> ConsoleSettings:
    return ConsoleSettings(identities=(Path("operator"),), **fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"host": "10.0.0.1"}, "host is '10.0.0.1'"),
        ({"host": "10.0.0.1", **PASSWORDS}, "needs --tls-cert and --tls-key"),
        ({"host": "10.0.0.1", **PROXY}, "needs --tls-cert and --tls-key"),
        ({"host": "10.0.0.1", **TLS}, "needs --password-file"),
        ({"host": EVERYWHERE[0], **TLS, **PASSWORDS}, "name is not given"),
        ({"host": "10.0.0.1", "insecure": True, **TLS, **PASSWORDS}, "without TLS"),
        ({"certificate": Path("c.pem")}, "tls-cert and tls-key"),
        ({"trusted_proxy": "10.0.0.2"}, "none of them: without"),
        ({**PROXY, "proxy_secret_file": None}, "none of them: without"),
        ({**PROXY, "trusted_proxy": "127.0.0.1", "proxy_secret_file": None}, "or none of them"),
        ({**PROXY, "user_header": ""}, "or none of them"),
        ({"proxy_secret_file": Path("secret")}, "or none of them"),
        ({**PROXY, "trusted_proxy": "10.0.0.0/8"}, "trusted-proxy is '10.0.0.0/8'"),
        ({**PROXY, "user_header": "X Remote"}, "proxy-user-header is 'X Remote'"),
        ({**PROXY, **PASSWORDS}, "password-file and trusted-proxy"),
        ({"port": 65536}, "port is 65536"),
        ({"names": ("a b",)}, "name is 'a b'"),
    ],
)
def test_what_would_be_exposed_is_rejected(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings(**fields)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"host": "::1"},
        {**TLS},
        {**PASSWORDS},
        {"host": "10.0.0.1", **TLS, **PASSWORDS},
        {"host": EVERYWHERE[0], "names": ("console.example.org",), **TLS, **PROXY},
    ],
)
def test_what_is_protected_is_accepted(fields: dict[str, Any]) -> None:
    assert settings(**fields).scheme == ("https" if "certificate" in fields else "http")
