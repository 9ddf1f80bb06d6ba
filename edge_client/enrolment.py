"""Enrolment: exchanges a join token for an identity, and keeps identities so that a crash leaves the old or the new."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import grpc

from moonfed import CONTRACT_VERSION, transport
from moonfed.errors import AlreadyExists, InvalidInput
from moonfed.files import sync_directory
from moonfed.identity import Identity, key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.join_token import PREFIX, JoinToken, parse_token
from moonfed.v1 import enrolment_pb2, enrolment_pb2_grpc

IDENTITY = "identity"  # in the state directory
ATTEMPTS = 4


def read_token(text_or_file: str) -> JoinToken:
    """A join token from the command line, or from the file that it names."""
    if text_or_file.strip().startswith(PREFIX):
        return parse_token(text_or_file)
    path = Path(text_or_file)
    if not path.is_file():
        raise InvalidInput(f"the join token must start with {PREFIX!r} or name a file; {text_or_file!r} does neither")
    return parse_token(path.read_text())


def enrol(token: JoinToken, name: str, state: Path, address: str | None = None) -> Identity:
    """Makes a key, has it certified and saves the identity in STATE/identity; the key never leaves this device.

    `address` replaces the token's. Raises AlreadyExists if STATE holds an identity, Untrusted for a token that the
    coordinator does not accept or a server that the token's authority did not sign, Unavailable if nobody answers.
    """
    if (state / IDENTITY).exists():
        held = read_identity(state).name
        raise AlreadyExists(
            f"{state} already holds the identity of {held!r}; run with it, or name another directory with --state"
        )
    address = address or token.address
    key = new_key()
    request = enrolment_pb2.EnrolRequest(
        secret=token.secret,
        device=name,
        signing_request=signing_request(key, name),
        contract_version=CONTRACT_VERSION,
    )
    reply = _ask(address, token.ca, request)
    host, _ = transport.parse_address(address)
    fleet = f"[{host}]:{reply.fleet_port}" if ":" in host else f"{host}:{reply.fleet_port}"
    keep_identity(state, address=fleet, ca=token.ca, certificate=reply.certificate, key=key_bytes(key))
    return read_identity(state)


def read_identity(state: Path) -> Identity:
    """The identity in a state directory; NotFound says what is missing."""
    return load_identity(state / IDENTITY)


def keep_identity(state: Path, *, address: str, ca: bytes, certificate: bytes, key: bytes) -> None:
    """Makes STATE/identity hold exactly this.

    It is a link to a directory of its own: a key and its certificate change in one step, and a device that loses its
    power in that moment still has a pair that fits.
    """
    state.mkdir(parents=True, exist_ok=True)
    directory = state / f"{IDENTITY}-{hashlib.sha256(certificate).hexdigest()[:16]}"
    save_identity(directory, address=address, ca=ca, certificate=certificate, key=key)
    link = state / f".{IDENTITY}.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(directory.name)
    os.replace(link, state / IDENTITY)
    sync_directory(state)
    for old in state.glob(f"{IDENTITY}-*"):
        if old != directory:
            shutil.rmtree(old)


def _ask(address: str, ca: bytes, request: enrolment_pb2.EnrolRequest) -> enrolment_pb2.EnrolReply:
    transport.parse_address(address)
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca), transport.CLIENT_OPTIONS)
    with channel:
        return transport.call(
            enrolment_pb2_grpc.EnrolmentStub(channel).Enrol,
            request,
            attempts=ATTEMPTS,
            explain=lambda: transport.explain_enrolment_unavailable(address, ca),
        )
