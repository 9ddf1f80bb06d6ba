"""The receiver of webhooks: its address, the secrets that it knows, and signatures as Standard Webhooks has them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from moonfed.errors import InvalidInput
from moonfed.files import read_regular, require_file
from moonfed.transport.client import LOOPBACK

PREFIX = "whsec_"
SECRET_BYTES = (24, 64)
SECRETS = 2  # the new one and the old one, while it is being replaced
FILE_BYTES = 4096
ID_HEADER = "webhook-id"
TIME_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver. Only `host` may be logged, since the path of an address is often a secret, too."""

    url: str = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        _require_url(self.url)

    @property
    def host(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_local(self) -> bool:
        """True if it is on this machine."""
        return urlsplit(self.url).hostname in LOOPBACK

    def headers(self, id_: str, body: bytes, now: float) -> dict[str, str]:
        """Return the headers of one attempt to deliver a message."""
        moment = str(int(now))
        return {
            "content-type": "application/json",
            ID_HEADER: id_,
            TIME_HEADER: moment,
            SIGNATURE_HEADER: " ".join(f"v1,{signature(secret, id_, moment, body)}" for secret in self.secrets),
        }


def signature(secret: bytes, id_: str, moment: str, body: bytes) -> str:
    """Return the HMAC-SHA256 of a message's id, time and body, in base64."""
    signed = b".".join((id_.encode(), moment.encode(), body))
    return base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def read_receiver(url: str, secret_file: Path | None) -> Receiver:
    """Return the receiver that an operator names; InvalidInput names the option that is wrong, never the secret."""
    if secret_file is None:
        raise InvalidInput(
            "webhook_secret is missing; it must be a file with a secret that the receiver knows", field="webhook_secret"
        )
    require_file("webhook_secret", secret_file)
    lines = read_regular(secret_file, FILE_BYTES).split()
    if not 1 <= len(lines) <= SECRETS:
        raise _wrong_secret(secret_file)
    return Receiver(url, tuple(_decoded(line, secret_file) for line in lines))


def _decoded(line: bytes, file: Path) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(PREFIX.encode()), validate=True)
    except (binascii.Error, ValueError):
        raise _wrong_secret(file) from None  # the cause would show a part of it
    if not SECRET_BYTES[0] <= len(secret) <= SECRET_BYTES[1]:
        raise _wrong_secret(file)
    return secret


def _wrong_secret(file: Path) -> InvalidInput:
    return InvalidInput(
        field="webhook_secret",
        value=file,
        rest=(
            f"; it must hold a secret on one line: {SECRET_BYTES[0]} to {SECRET_BYTES[1]} bytes in "
            f"base64, such as `openssl rand -base64 32` prints, with or without {PREFIX!r} before them; "
            "while you replace the secret, a second line holds the other one"
        ),
    )


def _require_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _wrong_url() from None
    plain = parts.scheme == "http" and host in LOOPBACK
    if not host or parts.username is not None or not (plain or parts.scheme == "https"):
        raise _wrong_url()


def _wrong_url() -> InvalidInput:
    return InvalidInput(
        "webhook is not an address that may be used; it must begin with https://, or with http:// on this machine, and "
        "have no user name, such as https://hooks.example.org/moonfed",
        field="webhook",
    )
