"""The webhook's receiver: which addresses and secrets are accepted, and signatures that others can verify."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from moonfed.coordinator.webhooks.receiver import Receiver, read_receiver
from moonfed.errors import InvalidInput, NotFound
from tests.support.refusals import refused

LOCAL = "http://127.0.0.1:9/hook"
# Computed with openssl: printf 'evt_1.1700000000.{}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:… -binary | base64
KNOWN = "bXtchBV0Hi1flm60IFUb87JKA3d/Yvv8UoEjbNotegk="


def secret_file(directory: Path, *lines: str) -> Path:
    (directory / "secret").write_text("\n".join([*lines, ""]))
    return directory / "secret"


def encoded(size: int) -> str:
    return base64.b64encode(bytes(range(size))).decode()


def test_a_message_is_signed_with_its_id_and_time() -> None:
    headers = Receiver(LOCAL, (bytes(range(32)),)).headers("evt_1", b"{}", 1_700_000_000.9)
    assert headers == {
        "content-type": "application/json",
        "webhook-id": "evt_1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{KNOWN}",
    }


def test_two_secrets_make_two_signatures(tmp_path: Path) -> None:
    found = read_receiver(LOCAL, secret_file(tmp_path, f"whsec_{encoded(32)}", encoded(24)))
    assert found.secrets == (bytes(range(32)), bytes(range(24)))
    first, second = found.headers("evt_1", b"{}", 1_700_000_000.0)["webhook-signature"].split()
    assert first == f"v1,{KNOWN}"
    assert second.startswith("v1,")
    assert second != first


@pytest.mark.parametrize("line", ["", "password", encoded(8), "!" * 44, "\n".join([encoded(32)] * 3)])
def test_a_wrong_secret_is_not_shown(tmp_path: Path, line: str) -> None:
    with refused(InvalidInput, "webhook_secret") as caught:
        read_receiver(LOCAL, secret_file(tmp_path, line))
    assert not line or line not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_the_secret_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="webhook_secret is missing"):
        read_receiver(LOCAL, None)
    with refused(NotFound, "webhook_secret"):
        read_receiver(LOCAL, tmp_path / "none")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org",
        "http://hooks.example.org/x",
        "http://10.0.0.1/",
        "ftp://127.0.0.1/",
        "https://",
        "https://ann:pw@hooks.example.org/",
        "http://127.0.0.1.example.org/",
        "http://localhost:99999/",
        "https://[::1/",
    ],
)
def test_plain_http_stays_on_this_machine(url: str) -> None:
    with refused(InvalidInput, "webhook") as caught:
        Receiver(url, (bytes(32),))
    assert "pw" not in str(caught.value)


def test_neither_path_nor_secret_is_printed() -> None:
    found = Receiver("https://hooks.example.org:8443/services/T0/private", (bytes(range(32)),))
    assert (found.host, found.is_local) == ("https://hooks.example.org:8443", False)
    assert "private" not in repr(found)
    assert "\\x01" not in repr(found)
    assert Receiver("http://[::1]:80/", (bytes(32),)).is_local
