"""Trust, retries and transfers against real gRPC servers with real TLS."""

import datetime
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moonfed import errors
from moonfed.blobs import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.connection_diagnosis import explain_unavailable
from moonfed.grpc_status import to_status
from moonfed.identity import Identity, key_bytes, load_identity, new_key, save_identity, subject_of
from moonfed.join_token import JoinToken, parse_token
from moonfed.transport import (
    Backoff,
    call,
    fetch_blob,
    open_channel,
    parse_address,
    parts,
    require_loopback,
)
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc

CONTENT = bytes(range(251)) * 20_000  # 5 MB: several chunks
HOUR = datetime.timedelta(hours=1)


@dataclass
class Authority:
    """An authority made with nothing but the cryptography package."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls) -> "Authority":
        key = new_key()
        return cls(key, _certificate("authority", None, key, "authority", key, ca=True))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, name: str, role: str, *, life: datetime.timedelta = HOUR, begins: datetime.timedelta = -2 * HOUR
    ) -> tuple[bytes, bytes]:
        key = new_key()
        certificate = _certificate(name, role, key, "authority", self.key, life=life, begins=begins)
        return key_bytes(key), certificate.public_bytes(serialization.Encoding.PEM)


def _certificate(
    name: str,
    role: str | None,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
    life: datetime.timedelta = HOUR,
    begins: datetime.timedelta = -2 * HOUR,
) -> x509.Certificate:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if role:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role))
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
    )
    return builder.sign(issuer_key, hashes.SHA256())


class Fleet(fleet_pb2_grpc.FleetServicer):
    """Streams CONTENT, breaking off once; answers Decline with an error; counts the calls."""

    def __init__(self) -> None:
        self.fetches: list[int] = []
        self.reports = 0

    def Fetch(  # noqa: N802
        self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> Iterator[blob_pb2.Chunk]:
        self.fetches.append(request.offset)
        for start in range(request.offset, len(CONTENT), 1 << 20):
            if len(self.fetches) == 1 and start:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the line broke")
            yield blob_pb2.Chunk(data=CONTENT[start : start + (1 << 20)])

    def Decline(  # noqa: N802
        self, request: fleet_pb2.DeclineRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.DeclineReply:
        code, details, metadata = to_status(errors.SchemaMismatch("tensor 'a' is wrong"))
        context.set_trailing_metadata(metadata)
        context.abort(code, details)

    def Report(  # noqa: N802
        self, request: fleet_pb2.ReportRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.ReportReply:
        self.reports += 1
        if self.reports < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return fleet_pb2.ReportReply(stop=True)

    def Renew(  # noqa: N802
        self, request: fleet_pb2.RenewRequest, context: grpc.ServicerContext
    ) -> fleet_pb2.RenewReply:
        code, details, metadata = to_status(errors.Unavailable("the coordinator is stopping"))
        context.set_trailing_metadata(metadata)
        context.abort(code, details)


@dataclass
class Served:
    address: str
    authority: Authority
    fleet: Fleet
    directory: Path

    def identity(self, authority: Authority | None = None, **options: datetime.timedelta) -> Identity:
        """An identity whose certificate `authority` signed and that trusts the server's authority."""
        key, certificate = (authority or self.authority).issue("cam-1", "device", **options)
        directory = self.directory / str(len(list(self.directory.iterdir())))
        save_identity(directory, address=self.address, ca=self.authority.pem, certificate=certificate, key=key)
        return load_identity(directory)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    authority, fleet = Authority.make(), Fleet()  # type: ignore[abstract] # grpc leaves the rest unimplemented
    server = grpc.server(futures.ThreadPoolExecutor(4))
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    credentials = grpc.ssl_server_credentials([authority.issue("server", "server")], authority.pem, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield Served(f"127.0.0.1:{port}", authority, fleet, tmp_path)
    server.stop(None).wait()


def test_a_good_certificate_gets_an_answer_and_unavailable_is_retried(served: Served) -> None:
    identity = served.identity()
    with open_channel(identity.address, identity) as channel:
        reply = call(fleet_pb2_grpc.FleetStub(channel).Report, fleet_pb2.ReportRequest(), attempts=3)
    assert reply.stop
    assert served.fleet.reports == 3


def test_a_call_that_is_not_idempotent_is_not_retried(served: Served) -> None:
    identity = served.identity()
    with open_channel(identity.address, identity) as channel, pytest.raises(errors.Unavailable, match="not yet"):
        call(fleet_pb2_grpc.FleetStub(channel).Report, fleet_pb2.ReportRequest())
    assert served.fleet.reports == 1


def reason_of(identity: Identity) -> errors.MoonfedError:
    with open_channel(identity.address, identity) as channel, pytest.raises(errors.MoonfedError) as caught:
        call(
            fleet_pb2_grpc.FleetStub(channel).Report,
            fleet_pb2.ReportRequest(),
            attempts=100,
            explain=lambda: explain_unavailable(identity.address, identity),
        )
    return caught.value


def test_a_certificate_of_another_authority_is_final(served: Served) -> None:
    reason = reason_of(served.identity(Authority.make()))
    assert isinstance(reason, errors.Untrusted)
    assert "rejected this certificate" in str(reason)
    assert served.fleet.reports == 0


def test_an_expired_certificate_is_final_and_noticed_locally(served: Served) -> None:
    identity = served.identity(life=-HOUR)
    assert isinstance(reason_of(identity), errors.Untrusted)
    with pytest.raises(errors.Untrusted, match=r"'cam-1' expired on .* enrol again"):
        identity.require_valid()


def test_a_server_of_another_authority_is_final(served: Served, tmp_path: Path) -> None:
    identity = served.identity()
    save_identity(
        tmp_path / "other",
        address=identity.address,
        ca=Authority.make().pem,
        certificate=identity.certificate,
        key=identity.key,
    )
    reason = reason_of(load_identity(tmp_path / "other"))
    assert isinstance(reason, errors.Untrusted)
    assert "is not the coordinator that this identity belongs to" in str(reason)


def test_an_unreachable_coordinator_is_not_final(served: Served) -> None:
    identity = served.identity()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        reason = explain_unavailable(f"127.0.0.1:{free.getsockname()[1]}", identity)
    assert isinstance(reason, errors.Unavailable)
    assert "cannot be reached" in str(reason)


def test_a_clock_that_is_not_set_yet_is_not_final(served: Served, tmp_path: Path) -> None:
    """The certificates begin in an hour by this machine's clock."""
    early = served.authority.issue("server", "server", begins=HOUR, life=2 * HOUR)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([early], served.authority.pem, require_client_auth=True)
    )
    server.start()
    identity = served.identity()
    reason = explain_unavailable(f"127.0.0.1:{port}", identity)
    server.stop(None).wait()
    assert isinstance(reason, errors.Unavailable)
    told = rf"this machine's clock says {datetime.datetime.now(datetime.timezone.utc):%Y}-.*; set the clock"
    assert re.search(told, str(reason))


def test_a_connection_broken_right_after_the_handshake_is_retried(served: Served, tmp_path: Path) -> None:
    key, certificate = served.authority.issue("server", "server")
    (tmp_path / "both.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        identity = served.identity()

        def break_off() -> None:
            with suppress(OSError):  # the listener is shut down
                while True:
                    context.wrap_socket(listener.accept()[0], server_side=True).close()

        breaking = threading.Thread(target=break_off)
        breaking.start()
        reason = explain_unavailable(f"127.0.0.1:{listener.getsockname()[1]}", identity)
        listener.shutdown(socket.SHUT_RDWR)
        breaking.join()
    assert isinstance(reason, errors.Unavailable)
    assert "closed the connection after the handshake" in str(reason)


def test_an_error_keeps_its_class_and_sentence_over_the_wire(served: Served) -> None:
    identity = served.identity()
    with (
        open_channel(identity.address, identity) as channel,
        pytest.raises(errors.SchemaMismatch, match="tensor 'a' is wrong"),
    ):
        call(fleet_pb2_grpc.FleetStub(channel).Decline, fleet_pb2.DeclineRequest())


def test_a_foreign_error_reveals_nothing() -> None:
    code, details, metadata = to_status(RuntimeError("password=hunter2"))
    assert code == grpc.StatusCode.INTERNAL
    assert "hunter2" not in details
    assert metadata == ()


def test_a_fetch_resumes_after_a_broken_connection(served: Served, tmp_path: Path) -> None:
    identity, blobs, ref = served.identity(), BlobDirectory(tmp_path / "blobs"), ref_of_bytes(CONTENT)
    with open_channel(identity.address, identity) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        with pytest.raises(errors.Unavailable, match="the line broke"):
            fetch_blob(stub.Fetch, ref, blobs)
        path = fetch_blob(stub.Fetch, ref, blobs)
        assert fetch_blob(stub.Fetch, ref, blobs) == path
    assert path.read_bytes() == CONTENT
    assert served.fleet.fetches == [0, 1 << 20]


def test_bytes_of_another_sha256_are_rejected(served: Served, tmp_path: Path) -> None:
    identity, blobs, ref = served.identity(), BlobDirectory(tmp_path / "blobs"), BlobRef("0" * 64, len(CONTENT))
    served.fleet.fetches.append(0)
    with open_channel(identity.address, identity) as channel, pytest.raises(errors.Corrupt):
        fetch_blob(fleet_pb2_grpc.FleetStub(channel).Fetch, ref, blobs)
    assert not blobs.has(ref)


def test_parts_resume_at_the_receivers_offsets(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    ref = ref_of_bytes(CONTENT)
    sent = list(parts({ref: tmp_path / "a"}, {ref.sha256: 3_000_001}))
    assert b"".join(part.data for part in sent) == CONTENT[3_000_001:]
    assert [part.offset for part in sent] == [3_000_001, 3_000_001 + (1 << 20)]
    assert list(parts({ref: tmp_path / "a"}, {ref.sha256: ref.size})) == []


def test_the_role_and_name_come_from_the_certificate() -> None:
    authority = Authority.make()
    assert subject_of(authority.issue("cam-1", "device")[1]) == ("device", "cam-1")
    assert subject_of(authority.issue("ann", "operator")[1]) == ("operator", "ann")
    with pytest.raises(errors.Untrusted, match="names neither a device"):
        subject_of(authority.issue("x", "server")[1])


def test_a_certificate_is_renewed_in_the_last_third_of_its_life(served: Served) -> None:
    assert not served.identity(life=2 * HOUR).is_due_for_renewal()
    assert served.identity(life=HOUR / 2).is_due_for_renewal()


def test_an_identity_names_missing_files_and_protects_its_key(served: Served, tmp_path: Path) -> None:
    directory = served.identity().directory
    assert (directory / "key.pem").stat().st_mode & 0o077 == 0
    (directory / "key.pem").write_bytes(b"junk")
    with pytest.raises(errors.Corrupt, match="damaged certificate or key"):
        load_identity(directory)
    (directory / "ca.pem").unlink()
    with pytest.raises(errors.NotFound, match=r"holds no identity: ca\.pem is missing"):
        load_identity(directory)


def test_a_join_token_survives_line_breaks_and_damage_is_reported() -> None:
    token = JoinToken(address="hub.example:7444", ca=Authority.make().pem, secret="s3cret")
    text = str(token)
    assert parse_token(text[:100] + "\n  " + text[100:]) == token
    with pytest.raises(errors.InvalidInput, match="damaged or cut off"):
        parse_token(text[:-20])
    damaged = JoinToken(address="hub.example:7444", ca=b"no certificate", secret="s3cret")
    with pytest.raises(errors.InvalidInput, match="damaged or cut off"):
        parse_token(str(damaged))
    with pytest.raises(errors.InvalidInput, match="must start with"):
        parse_token("hello")


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:65536", ":7443", "host:x"])
def test_an_address_must_be_host_and_port(address: str) -> None:
    with pytest.raises(errors.InvalidInput, match="host:port"):
        parse_address(address)


def test_an_address_from_an_option_is_named_as_that() -> None:
    with pytest.raises(errors.InvalidInput, match=r"^coordinator is 'hub'; it must be host:port, with a port from 1"):
        parse_address("hub", "coordinator")


def test_plaintext_stays_on_this_machine() -> None:
    assert parse_address("[::1]:7443") == ("::1", 7443)
    require_loopback("127.0.0.1")
    with pytest.raises(errors.InvalidInput, match="without TLS"):
        open_channel("hub.example:7443", None)


def test_backoff_grows_is_capped_and_is_reset() -> None:
    backoff = Backoff(first=1, limit=8)
    waits = [backoff.next() for _ in range(6)]
    assert all(0.5 * ceiling <= wait <= ceiling for wait, ceiling in zip(waits, [1, 2, 4, 8, 8, 8], strict=True))
    backoff.reset()
    assert backoff.next() <= 1


def test_devices_that_lost_their_coordinator_together_do_not_come_back_together() -> None:
    assert len({Backoff(first=1, limit=8).next() for _ in range(20)}) > 10


def test_a_reason_of_the_coordinators_own_is_not_explained_away(served: Served) -> None:
    def away(*_: object) -> fleet_pb2.RenewReply:
        raise AssertionError

    identity = served.identity()
    with open_channel(identity.address, identity) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        with pytest.raises(errors.Unavailable, match="the coordinator is stopping"):
            call(stub.Renew, fleet_pb2.RenewRequest(), explain=away)  # type: ignore[arg-type]
