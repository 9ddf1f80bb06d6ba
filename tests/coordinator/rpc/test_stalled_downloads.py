"""A device that stops reading a download loses its connection, and the download's memory is released."""

from __future__ import annotations

import threading
from collections.abc import Callable

import grpc
import numpy as np
import pytest

from moonfed.coordinator.rpc import flow_control
from moonfed.errors import Unavailable
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2
from tests.coordinator.conftest import Fleet
from tests.faults.fleet import bundle_of
from tests.support.coordinator import WAIT, Device

ELEMENTS = 2_000_000
Until = Callable[[Callable[[], bool]], None]


def test_a_download_that_is_not_read_is_ended_with_its_connection(
    fleet: Fleet, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flow_control, "PART_SECONDS", 1.0)
    device, other = fleet.device("cam-1"), fleet.device("cam-2")
    fleet.start(minimum_devices=2, bundle=bundle_of(ELEMENTS))
    session, staying = device.connect(), other.connect()
    sha256 = session.assignment().blobs["model"].sha256
    stuck = device.fleet.Fetch(blob_pb2.FetchRequest(device="cam-1", sha256=sha256))
    stuck.initial_metadata()  # it has begun
    with pytest.raises(Unavailable):
        session.next()
    with pytest.raises(grpc.RpcError):
        list(stuck)
    assert "it does not read its download" in caplog.text
    whole = other.fleet.Fetch(blob_pb2.FetchRequest(device="cam-2", sha256=sha256))
    content = b"".join(chunk.data for chunk in whole)
    assert len(content) >= np.dtype("<f4").itemsize * ELEMENTS
    assert staying.assignment().blobs["model"].sha256 == sha256
    device.connect().leave()  # it may return


def test_a_download_over_a_dead_connection_does_not_delay_the_device_when_it_returns(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start(bundle=bundle_of(ELEMENTS))
    sha256 = device.connect().assignment().blobs["model"].sha256
    request = blob_pb2.FetchRequest(device="cam-1", sha256=sha256)
    unread = device.fleet.Fetch(request)  # over a connection that has gone silent
    unread.initial_metadata()
    identity = load_identity(fleet.tmp / "cam-1")
    options = [("grpc.use_local_subchannel_pool", 1)]
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    with grpc.secure_channel(identity.address, credentials, options) as channel:
        returned = Device("cam-1", channel)
        returned.connect()
        content = b"".join(chunk.data for chunk in returned.fleet.Fetch(request, timeout=WAIT))
    assert len(content) >= 4 * ELEMENTS
    with pytest.raises(grpc.RpcError):
        list(unread)


def test_a_device_gets_one_download_at_a_time(fleet: Fleet) -> None:
    device, other = fleet.device("cam-1"), fleet.device("cam-2")
    fleet.start(minimum_devices=2, bundle=bundle_of(ELEMENTS))
    sessions = [device.connect(), other.connect()]
    sha256 = sessions[0].assignment().blobs["model"].sha256
    request = blob_pb2.FetchRequest(device="cam-1", sha256=sha256)
    unread = device.fleet.Fetch(request)
    unread.initial_metadata()  # it has begun
    begun, second = threading.Event(), device.fleet.Fetch(request)

    def wait() -> None:
        second.initial_metadata()
        begun.set()

    reader = threading.Thread(target=wait)
    reader.start()
    for _ in range(3):
        assert list(other.fleet.Fetch(blob_pb2.FetchRequest(device="cam-2", sha256=sha256), timeout=WAIT))
    assert not begun.is_set(), "it waits for the first one"
    unread.cancel()  # type: ignore[no-untyped-call]
    assert begun.wait(WAIT)
    second.cancel()  # type: ignore[no-untyped-call]
    reader.join()
