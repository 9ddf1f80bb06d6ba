"""The interceptor: errors become statuses, and callers without a certificate are limited by address."""

from __future__ import annotations

import pytest

from moonfed.coordinator.rpc.interceptor import host_of
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask


def test_an_unknown_error_reveals_nothing_to_the_caller(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from moonfed.coordinator.api.operator_api import OperatorApi

    async def fail(self: OperatorApi) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(OperatorApi, "devices", fail)
    with pytest.raises(Exception, match="internal error") as caught:
        ask(fleet.operator.control.ListDevices, control_pb2.ListDevicesRequest())
    assert "secret" not in str(caught.value)
    assert "secret detail" in caplog.text


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:51234", "ipv4:10.0.0.7"),
        ("ipv6:%5B::1%5D:51234", "ipv6:%5B::1%5D"),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_a_peers_port_is_not_its_name(peer: str, host: str) -> None:
    assert host_of(peer) == host
