"""The client side of the wire: channels, bounded retries, and resumable blob transfers.

`moonfed.transport.diagnosis` explains why a call failed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import grpc

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.errors import Corrupt, InvalidInput, MoonfedError, Unavailable
from moonfed.transport.checked_channel import checked
from moonfed.transport.grpc_status import error_name, from_rpc_error
from moonfed.transport.identity import Identity
from moonfed.v1 import blob_pb2

PART_SIZE = 1 << 20  # bytes in one message; gRPC's default limit is 4 MiB
CALL_SECONDS = 30.0  # for a call without a stream
KEEPALIVE_SECONDS = 30  # NATs forget idle connections after a minute or more
LOOPBACK = ("127.0.0.1", "localhost", "::1")

CLIENT_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),  # we retry ourselves: only idempotent calls, and never after a bad certificate
    ("grpc.max_reconnect_backoff_ms", 10_000),
)
SERVER_OPTIONS = (
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
    ("grpc.keepalive_time_ms", 2 * KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
    ("grpc.http2.bdp_probe", 0),  # else every stream may send megabytes ahead of its reader
    # else each connection keeps a buffer as large as its largest read, a megabyte or more
    ("grpc.experimental.tcp_max_read_buffer_size", PART_SIZE // 16),
    ("grpc.max_receive_message_length", 2 * PART_SIZE),
)

Request = TypeVar("Request")
Reply = TypeVar("Reply")


def parse_address(address: str, field: str = "address") -> tuple[str, int]:
    """Split `host:port` (`[::1]:port` for IPv6); InvalidInput, naming the field, if it is neither."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidInput(field=field, value=address, allowed="host:port, with a port from 1 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def require_loopback(host: str) -> None:
    """Raise InvalidInput unless the host is this machine: plaintext must not leave it."""
    if host not in LOOPBACK:
        raise InvalidInput(
            field="host", value=host, rest=f"; without TLS (--insecure) it must be one of {', '.join(LOOPBACK)}"
        )


def open_channel(address: str, identity: Identity | None, proxy: str = "") -> grpc.Channel:
    """Return a channel with mutual TLS, or in plaintext to this machine if there is no identity.

    `proxy`: the URL of an HTTP proxy; by default gRPC uses the environment's. Replies are checked: see replies.py.
    """
    host, _ = parse_address(address)
    if identity is None:
        require_loopback(host)
        return checked(grpc.insecure_channel(address, client_options(proxy)))
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    return checked(grpc.secure_channel(address, credentials, client_options(proxy)))


def open_enrolment_channel(address: str, ca: bytes, proxy: str = "") -> grpc.Channel:
    """Return a channel of a caller that has no certificate yet; `ca`: the authority that it trusts, PEM."""
    credentials = grpc.ssl_channel_credentials(ca)
    return checked(grpc.secure_channel(address, credentials, client_options(proxy)))


def client_options(proxy: str = "") -> tuple[tuple[str, int | str], ...]:
    """Return a channel's options, with an HTTP proxy if one is given."""
    return (*CLIENT_OPTIONS, ("grpc.http_proxy", proxy)) if proxy else CLIENT_OPTIONS


@dataclass(slots=True)
class Backoff:
    """Jittered, capped exponential backoff in seconds."""

    first: float = 0.5
    limit: float = 60.0
    failures: int = 0

    def next(self) -> float:
        """Return the delay after one more failure."""
        ceiling = min(self.limit, self.first * 2.0**self.failures)
        self.failures = min(self.failures + 1, 30)
        return ceiling * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Reset after a success."""
        self.failures = 0


def call(
    method: Callable[..., Reply],
    request: Request,
    *,
    attempts: int = 1,
    explain: Callable[[], MoonfedError] | None = None,
    timeout: float = CALL_SECONDS,
) -> Reply:
    """Make one unary call with our errors; only idempotent calls may request more than one attempt.

    `explain` turns UNAVAILABLE into its reason; a reason that is not Unavailable is final.
    """
    backoff = Backoff()
    while True:
        attempts -= 1
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            reason = explained(error, explain)
            if attempts <= 0 or not isinstance(reason, Unavailable):
                raise reason from error
        time.sleep(backoff.next())


def explained(error: grpc.RpcError, explain: Callable[[], MoonfedError] | None) -> MoonfedError:
    """Convert a failed call's error; explain UNAVAILABLE unless the coordinator gave a reason."""
    unreachable = cast(grpc.Call, error).code() == grpc.StatusCode.UNAVAILABLE and error_name(error) is None
    return explain() if explain and unreachable else from_rpc_error(error)


def fetch_blob(
    method: Callable[..., Iterable[blob_pb2.Chunk]], ref: BlobRef, blobs: BlobDirectory, *, device: str = ""
) -> Path:
    """Fetch a blob into the directory, resuming an earlier call, and return its verified file."""
    if blobs.has(ref):
        return blobs.verified_path(ref)
    with blobs.receive(ref) as incoming:
        request = blob_pb2.FetchRequest(device=device, sha256=ref.sha256, offset=incoming.offset)
        try:
            for chunk in method(request):
                incoming.append(incoming.offset, chunk.data)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        blobs.put_file(incoming.finish(), ref)
    return blobs.path(ref.sha256)


def fetch_bytes(method: Callable[..., Iterable[blob_pb2.Chunk]], ref: BlobRef, *, device: str = "") -> bytes:
    """Fetch a small blob into memory, and return its bytes once they match its name; Corrupt if they do not."""
    content = bytearray()
    try:
        for chunk in method(blob_pb2.FetchRequest(device=device, sha256=ref.sha256)):
            content += chunk.data
            if len(content) > ref.size:
                break
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    return verified(bytes(content), ref)


def verified(content: bytes, ref: BlobRef) -> bytes:
    """Return a blob's content; raise Corrupt if it does not match its name."""
    if ref_of_bytes(content) != ref:
        raise Corrupt(f"the bytes received as blob {ref.sha256[:12]} have another sha256; fetch them again")
    return content


def parts(files: Mapping[BlobRef, Path], offsets: Mapping[str, int], size: int = PART_SIZE) -> Iterator[blob_pb2.Part]:
    """Yield the missing parts of some blobs, given the receiver's offsets; at most `size` bytes each."""
    for ref, path in files.items():
        offset = offsets.get(ref.sha256, 0)
        with path.open("rb") as file:
            file.seek(offset)
            while data := file.read(size):
                yield blob_pb2.Part(sha256=ref.sha256, offset=offset, data=data)
                offset += len(data)


def to_message(ref: BlobRef) -> blob_pb2.Blob:
    """Return a blob's name and length as a message."""
    return blob_pb2.Blob(sha256=ref.sha256, size=ref.size)


def from_message(blob: blob_pb2.Blob) -> BlobRef:
    """Return a message's blob; InvalidInput if it is malformed."""
    return BlobRef(blob.sha256, blob.size)
