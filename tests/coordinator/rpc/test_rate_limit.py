"""A flood of calls: its sender is told to retry later, and all others are served."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from moonfed.coordinator.rpc.rate_limit import RateLimiter, RateLimits
from moonfed.errors import Overloaded, Unavailable
from moonfed.transport import client as transport
from moonfed.transport.grpc_status import from_rpc_error
from moonfed.transport.join_token import parse_token
from moonfed.v1 import enrolment_pb2, enrolment_pb2_grpc, fleet_pb2
from moonfed.version import CONTRACT_VERSION
from tests.support.clock import Clock
from tests.support.coordinator import Device, coordinator_in_process, enrol, operator

FLOOD = 5000  # calls; a burst of 500 and 50 a second are allowed


def begun(gate: RateLimiter, name: str, calls: int) -> int:
    """Count the calls admitted out of a sequence."""
    let_in = 0
    for _ in range(calls):
        with suppress(Overloaded), gate.call(name):
            let_in += 1
    return let_in


def test_a_caller_may_make_a_burst_of_calls_and_then_a_limited_rate() -> None:
    clock = Clock()
    gate = RateLimiter(RateLimits(per_second=2.0, burst=10), clock)
    assert begun(gate, "cam-1", 50) == 10
    with pytest.raises(Overloaded, match=r"'cam-1' calls too often: 2 times a second is allowed; retry in 0\.50 s"):
        gate.call("cam-1").__enter__()
    clock.now += 3.0
    assert begun(gate, "cam-1", 50) == 6
    clock.now += 1e6
    assert begun(gate, "cam-1", 50) == 10
    assert begun(gate, "cam-2", 5) == 5, "one caller's flood is not another's"


def test_calls_at_once_are_bounded_for_one_and_for_all() -> None:
    gate = RateLimiter(RateLimits(calls=5, calls_of_one=3))
    with ExitStack() as under_way:
        for _ in range(3):
            under_way.enter_context(gate.call("cam-1"))
        with pytest.raises(Overloaded, match="'cam-1' has 3 calls under way"):
            under_way.enter_context(gate.call("cam-1"))
        for _ in range(2):
            under_way.enter_context(gate.call("cam-2"))
        with pytest.raises(Overloaded, match="5 calls to answer, its maximum; retry later"):
            under_way.enter_context(gate.call("cam-3"))
    assert begun(gate, "cam-1", 3) == 3


def test_idle_callers_are_removed() -> None:
    clock = Clock()
    gate = RateLimiter(RateLimits(calls=10), clock)
    for number in range(100):
        begun(gate, f"cam-{number}", 1)
        clock.now += 5.0
    assert len(gate._callers) <= 13


def test_callers_are_scanned_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan takes time proportional to the number of addresses, of which an attacker may have many."""
    clock, times = Clock(), 0
    gate = RateLimiter(RateLimits(calls=10), clock)
    evict = gate._evict

    def counted() -> None:
        nonlocal times
        times += 1
        evict()

    monkeypatch.setattr(gate, "_evict", counted)
    for number in range(1000):
        begun(gate, f"ipv4:10.0.{number // 256}.{number % 256}", 1)
        clock.now += 0.01
    assert 0 < times <= 11


def test_a_caller_whose_bucket_is_not_full_is_remembered_however_many_others_there_are() -> None:
    gate = RateLimiter(RateLimits(calls=10, burst=3), Clock())
    assert begun(gate, "guesser", 5) == 3
    for number in range(50):
        begun(gate, f"cam-{number}", 1)
    assert begun(gate, "guesser", 5) == 0


def test_a_flood_is_rejected_while_health_operators_and_other_devices_are_served(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with coordinator_in_process(state) as ports, ExitStack() as stack:
        calls = operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        token = calls.token()
        channels = []
        for name in ("cam-1", "cam-2"):
            identity = enrol(tmp_path / name, token, name)
            channels.append(stack.enter_context(transport.open_channel(identity.address, identity)))
        flooding, other = (Device(f"cam-{number}", channel) for number, channel in enumerate(channels, 1))
        request = fleet_pb2.ReportRequest(device="cam-1", run="none", round=1, attempt=1)
        for _ in range(FLOOD):
            with pytest.raises(grpc.RpcError) as caught:
                flooding.fleet.Report(request)
            if caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                break
        error = from_rpc_error(caught.value)
        assert isinstance(error, Overloaded), "a device waits and tries again: to it the coordinator is away"
        assert isinstance(error, Unavailable)
        assert "'cam-1' calls too often" in str(error)
        health = health_pb2_grpc.HealthStub(channels[0])
        for _ in range(3):
            assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        assert calls.token()
        other.connect().leave()


def test_a_guesser_is_limited_by_its_address_however_often_it_reconnects(tmp_path: Path) -> None:
    with coordinator_in_process(tmp_path / "state") as ports:
        calls = operator(tmp_path / "state", ports.fleet)
        with calls.channel:
            parsed = parse_token(calls.token())
        request = enrolment_pb2.EnrolRequest(secret="guess", device="cam-1", contract_version=CONTRACT_VERSION)
        answers: dict[grpc.StatusCode, grpc.RpcError] = {}
        for _ in range(FLOOD // 50):
            options = [("grpc.use_local_subchannel_pool", 1)]  # another connection each time
            credentials = grpc.ssl_channel_credentials(parsed.ca)
            with grpc.secure_channel(parsed.address, credentials, options) as channel:
                stub = enrolment_pb2_grpc.EnrolmentStub(channel)
                for _ in range(50):
                    with pytest.raises(grpc.RpcError) as caught:
                        stub.Enrol(request)
                    answers[caught.value.code()] = caught.value
            if grpc.StatusCode.RESOURCE_EXHAUSTED in answers:
                break
        error = from_rpc_error(answers[grpc.StatusCode.RESOURCE_EXHAUSTED])
        assert isinstance(error, Overloaded)
        assert "calls too often" in str(error)
