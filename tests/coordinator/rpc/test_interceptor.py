"""The interceptor: errors become statuses, and callers without a certificate are limited by address."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import NoReturn, cast
from unittest.mock import AsyncMock

import grpc
import pytest

from moonfed.coordinator.rpc import interceptor as module
from moonfed.coordinator.rpc.audit import Auditor
from moonfed.coordinator.rpc.interceptor import ErrorInterceptor, _admit_enrolment, host_of
from moonfed.coordinator.rpc.rate_limit import RateLimiter
from moonfed.errors import Overloaded
from moonfed.v1 import fleet_pb2
from tests.coordinator.conftest import Fleet


def test_an_unknown_error_reveals_nothing_to_the_caller(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from moonfed.coordinator.api.operator_api import OperatorApi

    async def fail(self: OperatorApi, query: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(OperatorApi, "devices", fail)
    with pytest.raises(Exception, match="internal error") as caught:
        fleet.operator.devices()
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


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_the_request_of_a_caller_that_is_not_admitted_is_not_parsed(kind: str) -> None:
    """Otherwise a flood of invalid requests would have no limit."""
    answered: list[grpc.StatusCode] = []

    def overloaded(_: str) -> NoReturn:
        raise Overloaded("too often")

    def parsed(_: bytes) -> NoReturn:
        raise AssertionError("the request was parsed")

    async def call() -> None:
        factory = getattr(grpc, f"{kind}_rpc_method_handler")
        handler = factory(lambda *_: None, fleet_pb2.ReportRequest.FromString, fleet_pb2.ReportReply.SerializeToString)
        limiter = cast("RateLimiter", SimpleNamespace(call=overloaded))
        interceptor = ErrorInterceptor(limiter, cast("Auditor", SimpleNamespace()))
        details = cast("grpc.HandlerCallDetails", SimpleNamespace(method="/moonfed.v1.Fleet/Report"))
        found = await interceptor.intercept_service(AsyncMock(return_value=handler), details)
        context = SimpleNamespace(auth_context=dict, peer=lambda: "ipv4:10.0.0.7:51234", abort=abort)
        request = b"" if found.request_deserializer is None else found.request_deserializer(b"")
        with suppress(asyncio.CancelledError):
            if kind == "unary_unary":
                await found.unary_unary(request, context)
            else:
                await anext(found.unary_stream(request, context))

    async def abort(code: grpc.StatusCode, *_: object) -> None:
        answered.append(code)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "request_parser", lambda _: parsed)
        asyncio.run(call())
    assert answered == [grpc.StatusCode.RESOURCE_EXHAUSTED]


def test_the_enrolments_of_a_network_share_a_limit() -> None:
    """One host can use a whole IPv6 /64 network."""
    callers: list[str] = []
    limiter = cast("RateLimiter", SimpleNamespace(call=callers.append))
    for peer in ("ipv6:%5B2001:db8::1%5D:1", "ipv6:%5B2001:db8::ffff%5D:2", "ipv6:%5B2001:db8:0:1::1%5D:1"):
        _admit_enrolment(limiter, SimpleNamespace(peer=lambda peer=peer: peer))
    assert callers[0] == callers[1] != callers[2]
