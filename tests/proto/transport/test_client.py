"""Trust, retries and transfers against real gRPC servers with real TLS."""

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from moonfed import errors
from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.transport.client import Backoff, call, fetch_blob, open_channel, parse_address, parts, require_loopback
from moonfed.transport.diagnosis import explain_unavailable
from moonfed.transport.grpc_status import to_status
from moonfed.v1 import fleet_pb2, fleet_pb2_grpc
from tests.support.refusals import refused
from tests.support.tls_fleet import CONTENT, Served


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
    assert "after the handshake" in str(reason)


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
    assert metadata == (("moonfed-docs", "errors/internal-error"),)


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


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:65536", ":7443", "host:x"])
def test_an_address_must_be_host_and_port(address: str) -> None:
    with pytest.raises(errors.InvalidInput, match="host:port"):
        parse_address(address)


def test_an_address_from_an_option_is_named_as_that() -> None:
    with refused(errors.InvalidInput, "coordinator", "hub"):
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
