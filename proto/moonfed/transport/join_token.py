"""Join tokens: one line of text with which a device enrols.

A token contains the enrolment address, the authority's certificate and a secret, so a device authenticates the
coordinator from the first byte. It permits enrolment only. It also contains the operator's trust file with all its
versions, so that the coordinator cannot choose the keys that the device trusts, and a device that trusts keys already
can tell whether these descend from them.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass

from cryptography import x509

from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.format_version import require_readable
from moonfed.signing.trust import TrustChain

VERSION = "moonfed-join-1"
PREFIX = f"{VERSION}."
_ANY_VERSION = re.compile(r"(moonfed-join-[0-9]{1,9})\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """The content of a join token."""

    address: str  # host:port of the Enrolment service
    ca: bytes  # PEM
    secret: str
    device: str = ""  # the only one that may enrol with it; empty: any new one
    trust: TrustChain | None = None  # None in the coordinator's token; the operator's program adds the trust file

    def __str__(self) -> str:
        fields: dict[str, object] = {"address": self.address, "ca": self.ca.decode(), "secret": self.secret}
        if self.device:
            fields["device"] = self.device
        if self.trust:
            fields["trust"] = self.trust.to_document()
        return PREFIX + base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def looks_like_token(text: str) -> bool:
    """Return whether a text begins as a token does, of whatever version."""
    return bool(_ANY_VERSION.match(text))


def parse_token(text: str) -> JoinToken:
    """Read a token; InvalidInput if it is incomplete, VersionMismatch if another release's coordinator made it."""
    text = "".join(text.split())  # a pasted token may be wrapped over lines
    if found := _ANY_VERSION.match(text):
        require_readable("the join token", found[1], (VERSION,))
    if not text.startswith(PREFIX):
        raise InvalidInput(f"the join token must start with {PREFIX!r}; paste all of it")
    body = text[len(PREFIX) :]
    try:
        fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        trust = TrustChain.from_document(fields["trust"]) if "trust" in fields else None
        address, ca, secret = (str(fields[name]) for name in ("address", "ca", "secret"))
        device = str(fields.get("device", ""))
        token = JoinToken(address=address, ca=ca.encode(), secret=secret, device=device, trust=trust)
        x509.load_pem_x509_certificate(token.ca)
    except VersionMismatch:
        raise
    except Exception as error:  # the parser raises various errors for damaged certificates
        raise InvalidInput("the join token is damaged or cut off; paste all of it") from error
    return token
