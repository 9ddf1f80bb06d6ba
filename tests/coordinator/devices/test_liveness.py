"""Liveness over real TLS: a round waits for devices that make progress, as many as it needs, with its labels."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.devices.liveness import RECONNECT_SECONDS, Liveness
from moonfed.coordinator.rpc.flow_control import FlowControl
from moonfed.coordinator.runs.close_round import close_round
from moonfed.errors import InvalidInput, TooLate, WrongState
from moonfed.transport.grpc_status import RETRY_AFTER_KEY
from moonfed.v1 import blob_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import WAIT, Device, model_bytes, model_values
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

Until = Callable[[Callable[[], bool]], None]
TIMEOUT = 1.5  # seconds; far more than a loaded machine takes between two heartbeats
OFTEN = 0.1  # seconds between two heartbeats


@contextmanager
def repeatedly(act: Callable[[int], object]) -> Iterator[None]:
    """Repeat a call and count it while the context lasts; its exception ends the test."""
    over, problems = threading.Event(), list[BaseException]()

    def work() -> None:
        count = 0
        while not over.wait(OFTEN):
            try:
                act(count)
            except BaseException as error:
                problems.append(error)
                return
            count += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not problems, problems


def lost(fleet: Fleet, run: str = "run") -> list[str]:
    return list(fleet.operator.run(run).open_round.lost)


def test_heartbeats_of_a_revoked_device_do_not_count() -> None:
    async def scenario() -> None:
        liveness = Liveness()
        for device in ("a", "b"):
            liveness.heartbeat(device)
        before = liveness.last_heartbeat("a")
        liveness.set_revoked(frozenset({"a"}))
        assert liveness.last_heartbeat("a") == -float("inf")
        assert liveness.last_heartbeat("b") >= before
        await asyncio.sleep(0.01)
        liveness.heartbeat("a")
        liveness.set_revoked(frozenset())
        assert liveness.last_heartbeat("a") == before

    asyncio.run(scenario())


def test_a_device_that_is_stuck_is_lost_and_one_that_trains_slowly_is_not(fleet: Fleet, until: Until) -> None:
    slow, stuck = fleet.device("cam-1"), fleet.device("cam-2")
    fleet.start(minimum_devices=2, heartbeat_timeout=TIMEOUT)
    sessions = [slow.connect(), stuck.connect()]
    work = [one.assignment() for one in sessions]
    began = time.monotonic()
    with repeatedly(lambda count: (slow.report(work[0], count / 1000), stuck.report(work[1], 0.25))):
        until(lambda: bool(lost(fleet)))
        assert time.monotonic() - began >= TIMEOUT
        time.sleep(TIMEOUT)
        assert lost(fleet) == ["cam-2"], "it is connected, and repeats the same report"
        slow.submit(work[0], model_bytes(2.0))
    assert list(fleet.operator.watch("run"))[-1].run.round == 1
    assert fleet.operator.rounds("run")[0].missing == ["cam-2"]


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_device_that_waits_for_its_turn_is_not_silent(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    arrived = threading.Event()
    loops, doors = list[asyncio.AbstractEventLoop](), list[FlowControl]()

    class Door(FlowControl):
        async def acquire(self, caller: Hashable) -> None:
            loops.append(asyncio.get_running_loop())
            arrived.set()
            await super().acquire(caller)

    def closed(**settings: int) -> FlowControl:
        is_door = len(doors) == ["down", "up"].index(way)
        doors.append(Door(slots=0, **settings) if is_door else FlowControl(**settings))
        return doors[-1]

    monkeypatch.setattr("moonfed.coordinator.rpc.fleet_service.FlowControl", closed)
    with fleet_in(tmp_path) as fleet, ThreadPoolExecutor(1) as threads:
        waiting, stuck = fleet.device("cam-1"), fleet.device("cam-2")
        fleet.start(minimum_devices=2, heartbeat_timeout=TIMEOUT)
        sessions = [waiting.connect(), stuck.connect()]
        work = [one.assignment() for one in sessions]

        def take_part() -> None:
            if way == "down":
                sha256 = work[0].blobs["model"].sha256
                list(waiting.fleet.Fetch(blob_pb2.FetchRequest(device="cam-1", sha256=sha256), timeout=WAIT))
            waiting.submit(work[0], model_bytes(2.0))

        taking_part = threads.submit(take_part)
        assert arrived.wait(WAIT)
        stuck.report(work[1], 0.1)  # so its silence began after the other one's
        until(lambda: bool(lost(fleet)))
        assert lost(fleet) == ["cam-2"]
        door = next(door for door in doors if isinstance(door, Door))
        for _ in range(9):
            loops[0].call_soon_threadsafe(door.pass_on)
        taking_part.result(WAIT)
        assert list(fleet.operator.watch("run"))[-1].run.round == 1


def test_a_lost_device_that_comes_back_in_time_counts(fleet: Fleet, until: Until) -> None:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(minimum_devices=2, heartbeat_timeout=TIMEOUT)
    sessions = [device.connect() for device in devices]
    work = [one.assignment() for one in sessions]
    with repeatedly(lambda count: devices[0].report(work[0], count / 1000)):
        sessions[1].leave()
        until(lambda: lost(fleet) == ["cam-2"])
        assert devices[1].connect().assignment() == work[1], "its assignment comes again"
        assert not lost(fleet)
        devices[1].submit(work[1], model_bytes(1.0))
        devices[0].submit(work[0], model_bytes(1.0))
    list(fleet.operator.watch("run"))
    assert fleet.operator.rounds("run")[0].counted == ["cam-1", "cam-2"]


def test_a_lost_device_that_makes_progress_again_is_waited_for(fleet: Fleet, until: Until) -> None:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(minimum_devices=2, heartbeat_timeout=TIMEOUT)
    sessions = [device.connect() for device in devices]
    work = [one.assignment() for one in sessions]
    with repeatedly(lambda count: devices[0].report(work[0], count / 1000)):
        until(lambda: lost(fleet) == ["cam-2"])
        devices[1].report(work[1], 0.5)
        until(lambda: not lost(fleet))
    assert sessions[1].replies.empty(), "it is at work, and need not be told again"


def test_fetching_and_sending_are_heartbeats(fleet: Fleet) -> None:
    down, up = fleet.device("cam-1"), fleet.device("cam-2")
    fleet.start(minimum_devices=2, heartbeat_timeout=TIMEOUT)
    work = [one.assignment() for one in [down.connect(), up.connect()]]
    content, sent = model_bytes(1.0), []

    def fetch(_: int) -> None:
        request = blob_pb2.FetchRequest(device="cam-1", sha256=work[0].blobs["model"].sha256)
        list(down.fleet.Fetch(request, timeout=WAIT))

    def slowly() -> Iterator[fleet_pb2.SubmitRequest]:
        yield fleet_pb2.SubmitRequest(header=up.header(work[1], content))
        sha256, step = ref_of_bytes(content).sha256, 8
        for offset in range(0, len(content), step):
            part = blob_pb2.Part(sha256=sha256, offset=offset, data=content[offset : offset + step])
            yield fleet_pb2.SubmitRequest(part=part)
            sent.append(offset)
            time.sleep(2 * TIMEOUT * step / len(content))
        yield fleet_pb2.SubmitRequest(commit=blob_pb2.Commit())

    with repeatedly(fetch):
        replies = list(up.fleet.Submit(slowly(), timeout=WAIT))
        assert len(sent) > 10
        assert replies[-1].HasField("receipt")
        assert not lost(fleet)
        assert not fleet.operator.rounds("run"), "it still waits for the other one"
        down.submit(work[0], content)


def test_work_for_one_run_is_progress_in_all_runs(fleet: Fleet, until: Until) -> None:
    busy, idle = fleet.device("cam-1"), fleet.device("cam-2")
    for run in ("one", "two"):
        fleet.start(run, minimum_devices=2, heartbeat_timeout=TIMEOUT)
    sessions = [busy.connect(), idle.connect()]
    work = {reply.run: reply for reply in (sessions[0].assignment(), sessions[0].assignment())}
    with repeatedly(lambda count: busy.report(work["one"], count / 1000)):
        until(lambda: bool(lost(fleet, "one") and lost(fleet, "two")))
        time.sleep(TIMEOUT)
        assert (lost(fleet, "one"), lost(fleet, "two")) == (["cam-2"], ["cam-2"])
        busy.submit(work["one"], model_bytes(1.0))
        busy.submit(work["two"], model_bytes(2.0))
    for name, value in (("one", 1.0), ("two", 2.0)):
        ended = list(fleet.operator.watch(name))[-1].run
        np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(value))


def test_after_a_restart_devices_have_time_to_find_the_coordinator_again(fleet: Fleet) -> None:
    assert RECONNECT_SECONDS > 60, "that long they wait between two tries"
    session = fleet.device("cam-1").connect()
    fleet.start(heartbeat_timeout=TIMEOUT)
    session.assignment()  # within the timeout, so that the device is not lost before the restart
    directory = fleet.tmp
    fleet.stack.close()
    with fleet_in(directory) as again:
        assert again.operator.run("run").open_round.cohort == ["cam-1"]
        time.sleep(1.5 * TIMEOUT)
        assert not lost(again)
        assert again.operator.run("run").waiting == "round 1 waits for 1 of 1 device: cam-1 (offline)"


def three_for_two(fleet: Fleet, rounds: int) -> tuple[list[Device], list[fleet_pb2.Assignment]]:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2", "cam-3")]
    fleet.start(minimum_devices=3, cohort=2, over_selection=0.5, rounds=rounds)
    sessions = [device.connect() for device in devices]
    return devices, [one.assignment() for one in sessions]


def test_an_over_selected_round_closes_without_the_slowest_which_gets_retry_advice(fleet: Fleet) -> None:
    devices, work = three_for_two(fleet, rounds=3)
    assert not devices[2].report(work[2], 0.1).stop
    time.sleep(0.5)
    for number in (0, 1):
        devices[number].submit(work[number], model_bytes(3.0))
    events = fleet.operator.watch("run")
    while not ((seen := next(events)).run.open_round.round == 2 or seen.round == 2):
        pass
    first = fleet.operator.rounds("run")[0]
    assert (list(first.counted), list(first.missing)) == (["cam-1", "cam-2"], ["cam-3"])
    told = devices[2].report(work[2], 0.2)
    assert told.stop
    assert told.reason.endswith("at round 2, attempt 1")
    assert 0 < told.retry_after_seconds <= 60, "about as long as the first round took"
    with pytest.raises(TooLate, match="at round 2") as caught:
        devices[2].submit(work[2], model_bytes(9.0))
    assert 0 < caught.value.retry_after_seconds <= 60
    assert fleet.operator.rounds("run")[0].counted == ["cam-1", "cam-2"]


def test_an_update_during_the_reduction_gets_retry_advice_and_does_not_count(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    reducing, go_on = threading.Event(), threading.Event()

    def held(*work: Any, **more: Any) -> object:
        reducing.set()
        assert go_on.wait(WAIT)
        return close_round(*work, **more)

    monkeypatch.setattr("moonfed.coordinator.runs.driver.close_round", held)
    devices, work = three_for_two(fleet, rounds=1)
    for number in (0, 1):
        devices[number].submit(work[number], model_bytes(3.0))
    assert reducing.wait(WAIT)
    try:
        with pytest.raises(TooLate, match="round 1, attempt 1 has closed") as caught:
            devices[2].submit(work[2], model_bytes(9.0))
    finally:
        go_on.set()
    assert caught.value.retry_after_seconds > 0
    ended = list(fleet.operator.watch("run"))[-1].run
    assert fleet.operator.rounds("run")[0].counted == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(3.0))


def test_a_straggler_of_a_closed_round_gets_the_status_and_the_metadata(fleet: Fleet) -> None:
    devices, work = three_for_two(fleet, rounds=1)
    for number in (0, 1):
        devices[number].submit(work[number], model_bytes(3.0))
    list(fleet.operator.watch("run"))
    fleet.start("next", rounds=2)
    header = devices[2].header(work[2], model_bytes(1.0), run="next", attempt=7)
    with pytest.raises(grpc.RpcError) as caught:
        list(devices[2].fleet.Submit(iter([fleet_pb2.SubmitRequest(header=header)]), timeout=WAIT))
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert RETRY_AFTER_KEY in str(caught.value.trailing_metadata())
    with pytest.raises(WrongState, match="has ended"):
        devices[2].submit(work[2], model_bytes(9.0))


def test_a_run_selects_only_devices_with_its_labels_and_names_the_others(fleet: Fleet, until: Until) -> None:
    devices = {name: fleet.device(name) for name in ("cam-1", "cam-2", "cam-3")}
    fleet.start(minimum_devices=2, labels={"site": "berlin", "camera": "hd"})
    inside = devices["cam-1"].connect(labels={"site": "berlin", "camera": "hd", "floor": "3"})
    elsewhere = devices["cam-2"].connect(labels={"site": "hamburg", "camera": "hd"})
    lacking = "not eligible: cam-2 (without the label site=berlin)"
    told = f"waiting for 1 more device: 1 eligible, 2 needed; {lacking}"
    until(lambda: fleet.operator.run("run").waiting == told)
    late = devices["cam-3"].connect(labels={"site": "berlin", "camera": "hd"})
    works = {"cam-1": inside.assignment(), "cam-3": late.assignment()}
    for name, work in works.items():
        devices[name].submit(work, model_bytes(1.0))
    list(fleet.operator.watch("run"))
    assert fleet.operator.rounds("run")[0].counted == ["cam-1", "cam-3"]
    assert elsewhere.replies.empty()
    listed = fleet.operator.devices()
    assert dict(listed[1].labels) == {"site": "hamburg", "camera": "hd"}


def test_labels_that_nobody_may_have_are_rejected(fleet: Fleet) -> None:
    with refused(InvalidInput, "label", "site="):
        fleet.device("cam-1").connect(labels={"site": ""})
