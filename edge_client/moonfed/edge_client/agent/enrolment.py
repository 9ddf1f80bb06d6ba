"""Enrolment: exchanges a join token for an identity, and replaces identities atomically.

The coordinator binds a device's name to its key. So the key is written to disk before the certificate request, and
reused if the reply is lost: a power failure in between does not cost the device its name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from moonfed import transport
from moonfed.edge_client.state.round_store import writing
from moonfed.edge_client.state.trust import pin
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, Untrusted
from moonfed.files import sync_directory, write_durably
from moonfed.identity import Identity, key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.join_token import PREFIX, JoinToken, parse_token
from moonfed.signing.key_files import read_trust
from moonfed.signing.trust import Trust

if TYPE_CHECKING:
    from moonfed.v1 import enrolment_pb2
from moonfed.version import CONTRACT_VERSION

IDENTITY = "identity"  # in the state directory
PENDING_KEY = "pending-key.pem"  # next to it: the key of a pending request
ATTEMPTS = 4


def read_token(text_or_file: str) -> JoinToken:
    """Read a join token from the command line, or from the file that it names."""
    if text_or_file.strip().startswith(PREFIX):
        return parse_token(text_or_file)
    with suppress(OSError, ValueError):  # there is no such file, or it is not text
        return parse_token(Path(text_or_file).read_text())
    raise InvalidInput(
        f"the join token must start with {PREFIX!r} or name a file that holds one; {text_or_file!r} does neither"
    )


def enrol(
    token: JoinToken,
    name: str,
    state: Path,
    address: str | None = None,
    proxy: str = "",
    trust_file: Path | None = None,
) -> Identity:
    """Request a certificate for this device's key; save the identity in STATE/identity and the trust next to it.

    An identity whose certificate has expired is re-enrolled under its name, with its key. `name` defaults to the name
    in that identity, or else to the host's. `address` overrides the token's address, `trust_file` its trust file;
    `proxy` is the URL of an HTTP proxy. Raises InvalidInput for a malformed `address` or without a trust file,
    AlreadyExists if STATE holds a valid identity or one with another name, Untrusted if the coordinator rejects the
    token or the token's authority did not sign the server's certificate, Unavailable if the coordinator is unreachable.
    """
    if address:
        transport.parse_address(address, "coordinator")
    trust = _trust(token, trust_file)
    expired = _expired_identity(state, name)
    name = name or (expired.name if expired else socket.gethostname())
    address = address or token.address
    with writing(state):
        keys = _candidates(state, expired)
    key, reply = _enrol_with_any(keys, name, token, address, proxy)
    host, _ = transport.parse_address(address)
    fleet = f"[{host}]:{reply.fleet_port}" if ":" in host else f"{host}:{reply.fleet_port}"
    with writing(state):
        pin(state, trust)
        return store_identity(state, address=fleet, ca=token.ca, certificate=reply.certificate, key=key_bytes(key))


def _trust(token: JoinToken, trust_file: Path | None) -> Trust:
    if trust_file:
        return read_trust(trust_file).verify()
    if token.trust is None:
        raise InvalidInput("the join token contains no trust file; name the engineer's with --trust")
    return token.trust


def read_identity(state: Path) -> Identity:
    """Return the identity in a state directory; NotFound says what is missing."""
    if not (state / IDENTITY).exists():
        raise NotFound(
            f"{state} holds no identity; enrol this device first, with: moonfed-client enrol TOKEN --state {state}"
        )
    return load_identity(state / IDENTITY)


def pending_key(state: Path) -> EllipticCurvePrivateKey:
    """Return the key of a certificate request that a crash may have interrupted, or a new key."""
    file = state / PENDING_KEY
    with suppress(FileNotFoundError, ValueError):  # none, or damaged
        return _private_key(file.read_bytes())
    key = new_key()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(file, key_bytes(key), mode=0o600)
    return key


def store_identity(state: Path, *, address: str, ca: bytes, certificate: bytes, key: bytes) -> Identity:
    """Replace STATE/identity atomically.

    STATE/identity is a symlink to a versioned directory: key and certificate change in one step, so a matching pair
    survives a power failure at any moment.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = state / f"{IDENTITY}-{hashlib.sha256(certificate).hexdigest()[:16]}"
    save_identity(directory, address=address, ca=ca, certificate=certificate, key=key)
    link = state / f".{IDENTITY}.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(directory.name)
    os.replace(link, state / IDENTITY)
    sync_directory(state)
    (state / PENDING_KEY).unlink(missing_ok=True)
    for old in state.glob(f"{IDENTITY}-*"):
        if old != directory:
            shutil.rmtree(old, ignore_errors=True)
    return read_identity(state)


def _expired_identity(state: Path, name: str) -> Identity | None:
    """Return the expired identity in STATE, None if STATE holds none; raise AlreadyExists for a valid one."""
    if not (state / IDENTITY).exists():
        return None
    existing = read_identity(state)
    with suppress(Untrusted):
        existing.require_valid()
        raise AlreadyExists(
            f"{state} already holds the identity of {existing.name!r}; run with it, "
            "or name another directory with --state"
        )
    if name not in ("", existing.name):
        raise AlreadyExists(
            f"{state} holds the expired identity of {existing.name!r}; enrol it again under that name, "
            "or name another directory with --state"
        )
    return existing


def _candidates(state: Path, expired: Identity | None) -> list[EllipticCurvePrivateKey]:
    """Return the keys that the coordinator may have on record for this device, or else a new one."""
    own = [_private_key(expired.key)] if expired else []
    return [pending_key(state), *own] if not own or (state / PENDING_KEY).exists() else own


def _private_key(pem: bytes) -> EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def _enrol_with_any(
    keys: list[EllipticCurvePrivateKey], name: str, token: JoinToken, address: str, proxy: str
) -> tuple[EllipticCurvePrivateKey, enrolment_pb2.EnrolReply]:
    """Return the first key that the coordinator certifies; any of them may be on record for the name."""
    *others, last = keys
    for key in others:
        with suppress(AlreadyExists):
            return key, _request_certificate(key, name, token, address, proxy)
    return last, _request_certificate(last, name, token, address, proxy)


def _request_certificate(
    key: EllipticCurvePrivateKey, name: str, token: JoinToken, address: str, proxy: str
) -> enrolment_pb2.EnrolReply:
    # Only now: a running agent seldom asks for a certificate, and must stay small.
    from moonfed.connection_diagnosis import explain_enrolment_unavailable
    from moonfed.v1 import enrolment_pb2, enrolment_pb2_grpc

    transport.parse_address(address)
    request = enrolment_pb2.EnrolRequest(
        secret=token.secret,
        device=name,
        signing_request=signing_request(key, name),
        contract_version=CONTRACT_VERSION,
    )
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(token.ca), transport.client_options(proxy))
    with channel:
        return transport.call(
            enrolment_pb2_grpc.EnrolmentStub(channel).Enrol,
            request,
            attempts=ATTEMPTS,
            explain=lambda: explain_enrolment_unavailable(address, token.ca, proxy),
        )
