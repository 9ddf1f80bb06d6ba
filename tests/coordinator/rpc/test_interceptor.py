"""The interceptor: errors become statuses, and callers without a certificate are limited by address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from moonfed.coordinator.rpc.interceptor import _admit_enrolment, host_of
from moonfed.coordinator.rpc.rate_limit import RateLimiter
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


def test_the_enrolments_of_a_network_share_a_limit() -> None:
    """One host has a whole IPv6 network of 64 bits."""
    callers: list[str] = []
    limiter = cast("RateLimiter", SimpleNamespace(call=callers.append))
    for peer in ("ipv6:%5B2001:db8::1%5D:1", "ipv6:%5B2001:db8::ffff%5D:2", "ipv6:%5B2001:db8:0:1::1%5D:1"):
        _admit_enrolment(limiter, SimpleNamespace(peer=lambda peer=peer: peer))
    assert callers[0] == callers[1] != callers[2]
