"""Delivery of webhooks by a real coordinator to a real HTTP receiver: signed, in order, at least once."""

from __future__ import annotations

import base64
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from moonfed.coordinator.webhooks import sender
from moonfed.coordinator.webhooks.receiver import Receiver
from moonfed.v1 import control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import Device, ask, make_bundle, model_bytes
from tests.support.coordinator_programs import Programs
from tests.support.release_fleet import create, deploy, signed_release, stopped_run
from tests.support.releases import NAME
from tests.support.webhook_receiver import SECRET, Receiving, receiving

pytestmark = pytest.mark.slow

BUNDLE = make_bundle()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(sender, "FIRST_SECONDS", 0.05)


def hooked(directory: Path, received: Receiving) -> Receiver:
    return Receiver(received.url, (SECRET,))


def decline(device: Device, work: fleet_pb2.Assignment) -> None:
    request = fleet_pb2.DeclineRequest(
        device=device.name, run=work.run, round=work.round, attempt=work.attempt, reason="too warm"
    )
    ask(device.fleet.Decline, request)


def test_every_kind_of_event_arrives_signed_and_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with receiving(0, 500, 429) as received, fleet_in(tmp_path, webhook=hooked(tmp_path, received)) as fleet:
        device = fleet.device("cam-1")
        session = device.connect()
        fleet.start("failing", bundle=BUNDLE, max_attempts=1)
        decline(device, session.assignment())
        told = [received.next() for _ in range(4)]  # the first one is repeated twice
        assert {message["id"] for message in told[:3]} == {told[0]["id"]}
        assert told[0]["type"] == "round.abandoned"
        assert told[0]["data"]["round"] == told[0]["data"]["attempt"] == 1
        assert "cam-1: too warm" in told[0]["data"]["reason"]
        assert (told[3]["type"], told[3]["data"]["status"]) == ("run.failed", "failed")
        fleet.start("stopped", bundle=BUNDLE)
        stopped_run(fleet.operator, "stopped")
        ended = received.next()
        assert (ended["type"], ended["data"]["run"], ended["data"]["status"]) == ("run.ended", "stopped", "stopped")
        create(fleet.operator, signed_release("stopped", BUNDLE))
        deploy(fleet.operator, 1)
        ask(fleet.operator.control.RollBackDeployment, control_pb2.RollBackDeploymentRequest(name=NAME))
        rolled_back = received.next()
        assert (rolled_back["type"], rolled_back["data"]["version"]) == ("release.rolled_back", 1)
    assert "did not accept event" in caplog.text
    assert "accepts events again" in caplog.text
    assert "private-path" not in caplog.text
    assert base64.b64encode(SECRET).decode() not in caplog.text


def test_a_hanging_receiver_delays_no_round(tmp_path: Path) -> None:
    hanging = threading.Event()
    with (
        receiving(hanging=hanging) as received,
        fleet_in(tmp_path, webhook=hooked(tmp_path, received)) as fleet,
    ):
        end(fleet, "first")
        assert received.next()["data"]["run"] == "first"  # and gets no answer
        device = fleet.device("cam-1")
        session = device.connect()
        fleet.start("second", rounds=3, bundle=BUNDLE)
        for round_ in range(3):
            device.submit(session.assignment(), model_bytes(float(round_)))
        assert list(fleet.operator.watch("second"))[-1].run.status == "finished"
        assert received.messages.empty()
        hanging.set()
        assert received.next()["data"]["run"] == "second"


def end(fleet: Fleet, run: str) -> None:
    fleet.start(run, bundle=BUNDLE)
    stopped_run(fleet.operator, run)


def test_a_receiver_that_is_down_or_moved_gets_events_later(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    receiver = Receiver(f"http://127.0.0.1:{port}/moved", (SECRET,))
    with fleet_in(tmp_path, webhook=receiver) as fleet:
        end(fleet, "first")
        end(fleet, "second")
        with receiving(port, 302, 400) as received:
            told = [received.next() for _ in range(2)]
            assert told[0] == told[1]  # redirects are not followed
            assert told[0]["data"]["run"] == "first"
            later = [received.next()["data"]["run"] for _ in range(2)]
            assert sorted(later) == ["first", "second"]  # a refused event delays no other


def test_a_killed_coordinator_loses_no_event(programs: Programs, until: Callable[[Callable[[], bool]], None]) -> None:
    (programs.tmp / "secret").write_bytes(b"whsec_" + base64.b64encode(SECRET))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    words = ("--webhook", f"http://127.0.0.1:{port}/private-path", "--webhook-secret", str(programs.tmp / "secret"))
    told = programs.command("serve", *words[:2], "--state", str(programs.state), code=2)
    assert told.startswith("moonfed-coordinator: webhook_secret is missing; it must be a file")
    programs.serve("--name", "localhost", *words)
    fleet = Fleet(programs.state, None, programs.operator(), programs.stack, programs.tmp)  # type: ignore[arg-type]
    end(fleet, "digits")
    until(lambda: "did not accept event" in programs.log)
    programs.signal(signal.SIGKILL)
    with receiving(port) as received:
        programs.serve("--name", "localhost", *words)
        message = received.next()
        assert (message["type"], message["data"]["run"]) == ("run.ended", "digits")
    assert "private-path" not in programs.log


def test_pauses_double_up_to_a_limit() -> None:
    first, limit = sender.FIRST_SECONDS, sender.LAST_SECONDS
    for attempts in (0, 1, 5, 1000):
        longest = min(limit, first * 2.0 ** min(attempts, 30))
        assert all(longest / 2 <= sender.pause(attempts) <= longest for _ in range(20))
