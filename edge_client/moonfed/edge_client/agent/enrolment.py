"""Enrolment: exchanges a join token for an identity, and replaces identities atomically.

The coordinator binds a device's name to its key. So the key is written to disk before the certificate request, and
reused if the reply is lost: a power failure in between does not cost the device its name.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from moonfed.edge_client.state.round_store import writing
from moonfed.edge_client.state.trust import descendant, pin, replace_trust
from moonfed.errors import (
    AlreadyExists,
    Corrupt,
    Denied,
    InvalidInput,
    NotFound,
    Untrusted,
    VersionMismatch,
    WrongState,
)
from moonfed.files import sync_directory, write_durably
from moonfed.printable import printable
from moonfed.signing.key_files import read_trust
from moonfed.signing.trust import Trust
from moonfed.transport import client as transport
from moonfed.transport.identity import (
    Identity,
    default_name,
    key_bytes,
    load_identity,
    new_key,
    require_name,
    save_identity,
    signing_request,
    subject_of,
)
from moonfed.transport.join_token import PREFIX, JoinToken, looks_like_token, parse_token
from moonfed.validate import NAME, NAME_RULE, require

if TYPE_CHECKING:
    from moonfed.v1 import enrolment_pb2
from moonfed.version import CONTRACT_VERSION

IDENTITY = "identity"  # in the state directory
PENDING_KEY = "pending-key.pem"  # next to it: the key of a pending request
ATTEMPTS = 4
MAX_CERTIFICATE = 1 << 16  # bytes
REJECTIONS = (AlreadyExists, Denied, InvalidInput, Untrusted, VersionMismatch, WrongState)
Request = TypeVar("Request")
Reply = TypeVar("Reply")


def read_token(text_or_file: str) -> JoinToken:
    """Read a join token from the command line, or from the file that it names."""
    given = text_or_file.removeprefix("\ufeff").strip()
    if looks_like_token(given):
        return parse_token(given)
    with suppress(OSError, ValueError):  # there is no such file, or it is not text
        content = Path(text_or_file).read_bytes()
        encoding = "utf-16" if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
        return parse_token(content.decode(encoding))  # Windows writes both
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
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Identity:
    """Request a certificate for this device's key; save the identity in STATE/identity and the trust next to it.

    An identity whose certificate has expired is re-enrolled under its name, with its key. A token that was created for
    one device replaces that device's identity, and its key, which may have leaked. `name` defaults to the token's, to
    that in an expired identity, or else to the host's. `address` overrides the token's address, `trust_file` its trust
    file; `proxy` is the URL of an HTTP proxy. A device that has a trust file keeps it, unless the token's descends from
    it or `trust_file` is given; `say` is told the difference. Raises InvalidInput for a malformed `address`, without a
    trust file, or for another `name` than the token's; AlreadyExists if STATE holds a valid identity or one with
    another name; Untrusted if the coordinator rejects the token, if the token's authority did not sign the server's
    certificate, or if STATE trusts other keys than the token; Unavailable if the coordinator is unreachable.
    """
    if address:
        transport.parse_address(address, "coordinator")
    trust = _trust(token, trust_file, state, say)
    expired = None
    if token.device:
        _require_replaceable(state, name, token.device)
    else:
        expired = _expired_identity(state, name)
    name = require_name("device", name or token.device or (expired.name if expired else default_name()))
    address = address or token.address
    service = _EnrolmentService(token, address, proxy)
    service.require_reachable()  # so far, a failure leaves nothing behind
    with _discarding_rejected_key(state):
        with writing(state):
            keys = _candidates(state, expired)
        key, reply = _enrol_with_any(keys, name, service)
    host, _ = transport.parse_address(address)
    fleet = f"[{host}]:{reply.fleet_port}" if ":" in host else f"{host}:{reply.fleet_port}"
    with writing(state):
        if trust_file:
            replace_trust(state, trust)
        else:
            pin(state, trust)
        return store_identity(state, address=fleet, ca=token.ca, certificate=reply.certificate, key=key_bytes(key))


def _trust(token: JoinToken, trust_file: Path | None, state: Path, say: Callable[[str], None]) -> Trust:
    if trust_file:
        return read_trust(trust_file).verify()
    if token.trust is None:
        raise InvalidInput("the join token contains no trust file; name the engineer's with --trust")
    return descendant(state, token.trust, say)


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
    """Replace STATE/identity atomically; raise Corrupt, and store nothing, for a certificate that is not this device's.

    STATE/identity is a symlink to a versioned directory: key and certificate change in one step, so a matching pair
    survives a power failure at any moment.
    """
    _require_certificate(certificate, ca, key)
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


def _require_certificate(certificate: bytes, ca: bytes, key: bytes) -> None:
    """Raise Corrupt unless the authority certifies this key, in a device's name."""
    try:
        if len(certificate) > MAX_CERTIFICATE:
            raise ValueError(f"it has {len(certificate)} bytes")
        read = x509.load_pem_x509_certificate(certificate)
        read.verify_directly_issued_by(x509.load_pem_x509_certificate(ca))
        if read.public_key() != _private_key(key).public_key():
            raise ValueError("it is for another key")
        require(bool(NAME.fullmatch(subject_of(certificate)[1])), "name", subject_of(certificate)[1], NAME_RULE)
    except (InvalidSignature, TypeError, ValueError, InvalidInput, Untrusted) as error:
        reason = printable(str(error)) or "another authority has signed it"
        raise Corrupt(f"the coordinator sent a certificate that is not this device's: {reason}") from error


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


def _require_replaceable(state: Path, name: str, device: str) -> None:
    """Raise unless a token for one device may replace the identity in STATE, if there is one."""
    if name not in ("", device):
        raise InvalidInput(field="name", value=name, allowed=f"{device!r}, because the join token is for this device")
    if (state / IDENTITY).exists() and (held := read_identity(state)).name != device:
        raise AlreadyExists(
            f"{state} holds the identity of {held.name!r}, and the join token is for {device!r}; "
            "name another directory with --state"
        )


def _candidates(state: Path, expired: Identity | None) -> list[EllipticCurvePrivateKey]:
    """Return the keys that the coordinator may have on record for this device, or else a new one."""
    own = [_private_key(expired.key)] if expired else []
    return [pending_key(state), *own] if not own or (state / PENDING_KEY).exists() else own


def _private_key(pem: bytes) -> EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


@contextmanager
def _discarding_rejected_key(state: Path) -> Iterator[None]:
    """Remove a new pending key, and a new state directory, if the coordinator rejects the request."""
    new_directory, new_key = not state.exists(), not (state / PENDING_KEY).exists()
    try:
        yield
    except REJECTIONS:
        with suppress(OSError):  # it was never written, or the directory is not empty
            if new_key:
                (state / PENDING_KEY).unlink(missing_ok=True)
            if new_directory:
                state.rmdir()
        raise


def _enrol_with_any(
    keys: list[EllipticCurvePrivateKey], name: str, service: _EnrolmentService
) -> tuple[EllipticCurvePrivateKey, enrolment_pb2.EnrolReply]:
    """Return the first key that the coordinator certifies; any of them may be on record for the name."""
    *others, last = keys
    for key in others:
        with suppress(AlreadyExists):
            return key, service.request_certificate(key, name)
    return last, service.request_certificate(last, name)


class _EnrolmentService:
    """The coordinator's enrolment service, as a device without an identity calls it."""

    def __init__(self, token: JoinToken, address: str, proxy: str) -> None:
        transport.parse_address(address)
        self._token = token
        self._address = address
        self._proxy = proxy

    def require_reachable(self) -> None:
        """Raise Unavailable, or Untrusted, unless the coordinator's server answers a call."""
        with self._open_channel() as channel:
            check: Callable[..., bytes] = channel.unary_unary("/grpc.health.v1.Health/Check", None, None)
            with suppress(VersionMismatch):  # a server without that service has answered, too
                self._call(check, b"")

    def request_certificate(self, key: EllipticCurvePrivateKey, name: str) -> enrolment_pb2.EnrolReply:
        """Request a certificate for the key."""
        # Only now: a running agent seldom asks for a certificate, and must stay small.
        from moonfed.v1 import enrolment_pb2, enrolment_pb2_grpc

        request = enrolment_pb2.EnrolRequest(
            secret=self._token.secret,
            device=name,
            signing_request=signing_request(key, name),
            contract_version=CONTRACT_VERSION,
        )
        with self._open_channel() as channel:
            return self._call(enrolment_pb2_grpc.EnrolmentStub(channel).Enrol, request)

    def _open_channel(self) -> grpc.Channel:
        return transport.open_enrolment_channel(self._address, self._token.ca, self._proxy)

    def _call(self, method: Callable[..., Reply], request: Request) -> Reply:
        from moonfed.transport.diagnosis import explain_enrolment_unavailable

        return transport.call(
            method,
            request,
            attempts=ATTEMPTS,
            explain=lambda: explain_enrolment_unavailable(self._address, self._token.ca, self._proxy),
        )
