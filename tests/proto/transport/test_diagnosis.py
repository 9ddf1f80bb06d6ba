"""Diagnosis of failed connections: final and transient errors are distinguished."""

import datetime
import re
import socket
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from moonfed import errors
from moonfed.transport import diagnosis as connection_diagnosis
from moonfed.transport.client import call, open_channel
from moonfed.transport.diagnosis import explain_unavailable
from moonfed.transport.identity import Identity, load_identity, save_identity
from moonfed.v1 import fleet_pb2, fleet_pb2_grpc
from tests.support.tls_fleet import HOUR, Authority, Served


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recheck quickly whether a server rejects its caller."""
    monkeypatch.setattr(connection_diagnosis, "RECHECK_SECONDS", 0.01)


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
    assert not isinstance(reason, errors.WrongServer)
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
    assert isinstance(reason, errors.WrongServer), "which a device that knows its coordinator outlasts"
    assert "that this identity belongs to" in str(reason)


def test_an_unreachable_coordinator_is_not_final(served: Served) -> None:
    identity = served.identity()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        reason = explain_unavailable(f"127.0.0.1:{free.getsockname()[1]}", identity)
    assert isinstance(reason, errors.Unavailable)
    assert "cannot be reached" in str(reason)


@pytest.mark.parametrize(
    ("begins", "life", "told"),
    [
        pytest.param(HOUR, 2 * HOUR, "before .* become valid", id="not set yet"),
        pytest.param(-2 * HOUR, -HOUR, "after .* have expired", id="ahead"),
        pytest.param(-datetime.timedelta(days=2000), -datetime.timedelta(days=1000), "after", id="years ahead"),
    ],
)
def test_a_wrong_clock_is_not_final(
    served: Served, begins: datetime.timedelta, life: datetime.timedelta, told: str
) -> None:
    """The coordinator's certificate is not valid now, by this machine's clock."""
    early = served.authority.issue("server", "server", begins=begins, life=life)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([early], served.authority.pem, require_client_auth=True)
    )
    server.start()
    identity = served.identity()
    reason = explain_unavailable(f"127.0.0.1:{port}", identity)
    server.stop(None).wait()
    assert isinstance(reason, errors.Unavailable)
    clock = f"{datetime.datetime.now(datetime.timezone.utc):%Y}-"
    assert re.search(rf"this machine's clock says {clock}.*{told}.*; set the clock", str(reason))
