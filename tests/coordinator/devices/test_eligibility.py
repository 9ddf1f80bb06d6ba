"""Eligibility of devices for runs: what they lack, and what they answer when they are asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moonfed.control.codec import from_message
from moonfed.control.runs import Run
from moonfed.coordinator.cli.format_run import run_lines
from moonfed.coordinator.runs import driver
from moonfed.coordinator.storage.store import Store
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.fleet.class_bits import pack_classes
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import WAIT, Device, ask, make_bundle, model_bytes
from tests.support.refusals import refused

Until = Callable[[Callable[[], bool]], None]


def test_a_device_without_a_runs_encodings_is_not_selected_and_the_run_shows_it(fleet: Fleet, until: Until) -> None:
    fleet.start("run", uplink_encoding="int8+zstd", downlink_encoding="bfloat16")
    one = fleet.device("cam-1").connect(encodings=["float32", "bfloat16", "int8"])
    until(lambda: "not eligible" in fleet.operator.run("run").waiting)
    assert fleet.operator.run("run").waiting == (
        "waiting for 1 more device: 0 eligible, 1 needed; not eligible: cam-1 (without the encoding int8+zstd)"
    )
    two = fleet.device("cam-2").connect(encodings=["bfloat16", "int8+zstd"])
    work = two.assignment()
    assert (work.downlink_encoding, work.uplink_encoding) == ("bfloat16", "int8+zstd")
    run = fleet.operator.run("run")
    assert run.open_round.cohort == ["cam-2"]
    lines = run_lines(from_message(Run, run), None, [])
    assert any("uplink encoding int8+zstd, downlink encoding bfloat16" in line for line in lines)
    one.leave()
    two.leave()


def test_a_device_without_encodings_gets_float32(fleet: Fleet, until: Until) -> None:
    fleet.start("encoded", uplink_encoding="int8")
    device = fleet.device("cam-1")
    session = device.connect()
    until(lambda: "cam-1 (without the encoding int8)" in fleet.operator.run("encoded").waiting)
    started = fleet.start("plain")
    assert not any(line.startswith("encodings") for line in run_lines(from_message(Run, started), None, []))
    work = session.assignment()
    assert work.run == "plain"
    assert work.blobs["model"] == started.initial_model
    assert work.downlink_encoding in ("", "float32")
    assert work.uplink_encoding in ("", "float32")


def test_a_device_that_declines_a_run_for_good_is_ineligible_until_its_fingerprint_changes(
    fleet: Fleet, until: Until
) -> None:
    fleet.start("run")
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="one")
    device.answer(session.check(), "one")
    work = session.assignment()
    request = fleet_pb2.DeclineRequest(device="cam-1", run="run", round=1, attempt=1, permanent=True, reason="no trust")
    ask(device.fleet.Decline, request)
    sentence = "waiting for 1 more device: 0 eligible, 1 needed; not eligible: cam-1 (no trust)"
    until(lambda: fleet.operator.run("run").waiting == sentence)
    until(lambda: [entry.reason for entry in fleet.operator.rounds("run")] != [])
    other = fleet.start("other")
    device.answer(session.check(), "one")
    assert session.assignment().run == other.run  # and no second attempt of the first
    again = device.connect(fingerprint="one")
    assert again.assignment().run == other.run
    assert fleet.operator.run("run").waiting == sentence
    changed = device.connect(fingerprint="two")
    checks = {check.run: check for check in (changed.check(), changed.check())}
    for check in checks.values():
        device.answer(check, "two")
    assert {changed.assignment().run, changed.assignment().run} == {"run", "other"}
    assert work.signature == other.signature


def test_a_device_that_reconnects_with_other_data_as_its_round_opens_is_asked_first(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, released, open_round = threading.Event(), threading.Event(), Store.open_round

    def slow(self: Store, *details: Any) -> None:
        opening.set()
        assert released.wait(WAIT)
        open_round(self, *details)

    monkeypatch.setattr(Store, "open_round", slow)
    fleet.start("run")
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="one")
    with ThreadPoolExecutor(1) as threads:
        answered = threads.submit(device.answer, session.check(), "one")
        assert opening.wait(WAIT)
        changed = device.connect(fingerprint="two")
        with pytest.raises(WrongState, match="has connected again"):
            session.next()
        released.set()
        answered.result(WAIT)
    device.answer(changed.check(), "two")
    assert changed.assignment().run == "run"


def test_a_device_is_asked_before_it_is_selected_and_once(fleet: Fleet, until: Until) -> None:
    """It is asked as the run starts, or as it connects, and not again after a reconnect."""
    one, two = fleet.device("cam-1"), fleet.device("cam-2")
    first = one.connect(fingerprint="a")
    started = fleet.start("run", minimum_devices=1, cohort="all")
    check = first.check()
    assert (check.run, check.manifest, check.signature) == ("run", started.manifest, started.signature)
    waiting = "1 online, still checking the run: cam-1; 0 eligible so far, 1 needed"
    until(lambda: fleet.operator.run("run").waiting == waiting)
    assert fleet.operator.run("run").checking == 1
    second = two.connect(fingerprint="b")
    one.answer(check, "a", "it has no data")
    two.answer(second.check(), "b")
    assert second.assignment().run == "run"
    seen = fleet.operator.run("run")
    assert (seen.eligible, seen.checking, list(seen.open_round.cohort)) == (1, 0, ["cam-2"])
    assert [(group.reason, list(group.devices)) for group in seen.ineligible] == [("it has no data", ["cam-1"])]
    assert "it has no data: cam-1" in "".join(run_lines(from_message(Run, seen), None, []))
    first = one.connect(fingerprint="a")
    fleet.start("other", bundle=make_bundle(name="other"))
    assert first.check().run == "other"  # and nothing about the first run before


def test_answers_survive_a_restart_of_the_coordinator(tmp_path: Path, until: Until) -> None:
    with fleet_in(tmp_path) as fleet:
        device = fleet.device("cam-1")
        fleet.start("run")
        device.answer(device.connect(fingerprint="a").check(), "a", "it has no data")
    with fleet_in(tmp_path) as again:
        known, new = again.device("cam-2"), again.device("cam-3")
        del known
        identity = load_identity(tmp_path / "cam-1")
        with transport.open_channel(f"127.0.0.1:{again.ports.fleet}", identity) as channel:
            session = Device("cam-1", channel).connect(fingerprint="a")
            until(lambda: "not eligible: cam-1 (it has no data)" in again.operator.run("run").waiting)
            stream = new.connect(fingerprint="c")
            new.answer(stream.check(), "c")
            assert stream.assignment().run == "run"
            assert again.operator.run("run").open_round.cohort == ["cam-3"]
            assert session.replies.empty()
            session.leave()
    with fleet_in(tmp_path) as last:
        last.operator.control.StopRun(control_pb2.StopRunRequest(run="run"))
        assert [list(group.devices) for group in last.operator.run("run").ineligible] == [["cam-1"]], "known at the end"


def test_an_answer_about_other_data_does_not_count_and_the_device_is_asked_again(fleet: Fleet) -> None:
    fleet.start("run")
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="new")
    check = session.check()
    device.answer(check, "old")
    assert session.check() == check
    assert not fleet.operator.run("run").HasField("open_round")
    device.answer(check, "new")
    assert session.assignment().run == "run"


def test_an_answer_about_another_bundle_or_an_ended_run_is_rejected(fleet: Fleet) -> None:
    """A run may have been deleted, and another one of its name started, while the device was checking."""
    fleet.start("run")
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="a")
    check = session.check()
    ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
    with pytest.raises(WrongState, match="run 'run' has ended"):
        device.answer(check, "a")
    ask(fleet.operator.control.DeleteRun, control_pb2.DeleteRunRequest(run="run"))
    fleet.start("run", bundle=make_bundle(name="another"))
    newer = session.check()
    with pytest.raises(WrongState, match="run 'run' has another bundle"):
        device.answer(check, "a", "unfit")
    assert newer.manifest != check.manifest
    assert session.check() == newer
    assert not fleet.operator.run("run").ineligible


def test_a_device_may_fetch_the_manifest_and_the_signature_of_a_run_that_it_checks_and_nothing_else(
    fleet: Fleet,
) -> None:
    started = fleet.start("run", minimum_devices=2)
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="a")
    check = session.check()

    def fetch(sha256: str) -> object:
        request = blob_pb2.FetchRequest(device="cam-1", sha256=sha256)
        return ask(lambda message, timeout: list(device.fleet.Fetch(message, timeout=timeout)), request)

    assert fetch(check.manifest.sha256)
    assert fetch(check.signature.sha256)
    with pytest.raises(NotFound, match="device 'cam-1' participates in"):
        fetch(started.initial_model.sha256)
    device.answer(check, "a", "unfit")
    with pytest.raises(NotFound, match="belongs to no run"):
        fetch(check.manifest.sha256)


def test_a_device_corrects_its_answer(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fleet.start("run")
    device = fleet.device("cam-1")
    session = device.connect(fingerprint="a")
    check = session.check()
    device.answer(check, "a", "the camera\nis off")
    device.answer(check, "a", "the camera\nis off")
    device.answer(check, "a")
    assert session.assignment().run == "run"
    assert caplog.text.count("run 'run': cam-1 is not eligible: the camera is off") == 1
    assert caplog.text.count("run 'run': cam-1 is eligible") == 1


def test_a_long_reason_is_cut_off(fleet: Fleet) -> None:
    fleet.start("run")
    device = fleet.device("cam-1")
    device.answer(device.connect(fingerprint="a").check(), "a", "x" * 5000)
    (group,) = fleet.operator.run("run").ineligible
    assert group.reason == "x" * 1000


def test_a_run_begins_with_all_devices_that_are_online_and_answer(fleet: Fleet, until: Until) -> None:
    """Its first round does not open for the first device that answers."""
    devices = [fleet.device(f"cam-{number}") for number in (1, 2, 3)]
    sessions = [device.connect(fingerprint="a") for device in devices]
    fleet.start("run")
    checks = [session.check() for session in sessions]
    for device, check in zip(devices[:2], checks, strict=False):
        device.answer(check, "a")
    until(lambda: fleet.operator.run("run").eligible == 2)
    assert fleet.operator.run("run").waiting == ("1 online, still checking the run: cam-3; 2 eligible so far, 1 needed")
    sessions[2].leave()  # it does not answer
    assert [session.assignment().round for session in sessions[:2]] == [1, 1]
    assert fleet.operator.run("run").open_round.cohort == ["cam-1", "cam-2"]


def test_a_run_begins_without_the_devices_that_do_not_answer(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CHECK_SECONDS", 0.2)
    devices = [fleet.device(f"cam-{number}") for number in (1, 2)]
    sessions = [device.connect(fingerprint="a") for device in devices]
    fleet.start("run", rounds=2)
    devices[0].answer(sessions[0].check(), "a")
    first = sessions[0].assignment()
    devices[1].answer(sessions[1].check(), "a")
    devices[0].submit(first, model_bytes(1.0))
    assert sessions[1].assignment().round == 2


def test_an_encoding_that_nobody_knows_is_rejected(fleet: Fleet) -> None:
    with refused(InvalidInput, "uplink_encoding", "int4"):
        fleet.start("run", uplink_encoding="int4")


def test_an_encoding_for_updates_only_is_rejected_for_models(fleet: Fleet) -> None:
    with refused(InvalidInput, "downlink_encoding", "rotated4"):
        fleet.start("run", uplink_encoding="rotated4", downlink_encoding="rotated4")


@pytest.mark.parametrize(
    ("present", "absent"),
    [
        ([[0, 1], [1]], ["c"]),
        ([[1], [1]], ["a", "c"]),
        ([[0, 2], [1, 2]], []),
        ([[0], None], []),
    ],
    ids=["nobody has one", "nobody has two", "they complement each other", "one does not say"],
)
def test_the_classes_that_no_eligible_device_has_are_named(
    fleet: Fleet, present: list[list[int] | None], absent: list[str]
) -> None:
    devices = [fleet.device("cam-1"), fleet.device("cam-2"), fleet.device("cam-3")]
    checks = [device.connect(fingerprint="a") for device in devices]
    fleet.start("run", minimum_devices=9)
    asked = [session.check() for session in checks]
    assert all(check.report_classes for check in asked)
    devices[2].answer(asked[2], "a", "it has too little memory", pack_classes([0, 1, 2], 3))
    devices[0].answer(asked[0], "a", classes=pack_classes(present[0] or [], 3))
    assert fleet.operator.run("run").checking == 1
    assert not fleet.operator.run("run").absent_classes, "a device is still checking"
    devices[1].answer(asked[1], "a", classes=b"" if present[1] is None else pack_classes(present[1], 3))
    seen = fleet.operator.run("run")
    assert list(seen.absent_classes) == absent
    found = from_message(Run, seen)
    for lines in (run_lines(found, None, []), run_lines(found, None, [], 80)):
        assert any(line.endswith(f"samples of: {', '.join(absent)}") for line in lines) == bool(absent)
    ask(fleet.operator.control.StopRun, control_pb2.StopRunRequest(run="run"))
    assert list(fleet.operator.run("run").absent_classes) == absent, "at the end, too"


def test_a_device_that_joins_later_brings_a_class(tmp_path: Path, until: Until) -> None:
    """Reports survive a restart; a device that is offline still counts, and one that is removed does not."""
    with fleet_in(tmp_path) as fleet:
        one = fleet.device("cam-1")
        fleet.start("run", minimum_devices=9)
        first = one.connect(fingerprint="a")
        one.answer(first.check(), "a", classes=pack_classes([0, 1], 3))
        assert list(fleet.operator.run("run").absent_classes) == ["c"]
    with fleet_in(tmp_path) as again:
        assert list(again.operator.run("run").absent_classes) == ["c"]
        two = again.device("cam-2")
        second = two.connect(fingerprint="b")
        two.answer(second.check(), "b", classes=pack_classes([2], 3))
        assert not again.operator.run("run").absent_classes
        second.leave()
        until(lambda: again.operator.run("run").eligible == 0)
        assert not again.operator.run("run").absent_classes
        ask(again.operator.control.RemoveDevice, control_pb2.RemoveDeviceRequest(device="cam-2"))
        until(lambda: list(again.operator.run("run").absent_classes) == ["c"])


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
def test_classes_that_were_not_asked_for_are_rejected(fleet: Fleet, asked: bool) -> None:
    fleet.start("run", minimum_devices=9, private_classes=not asked)
    device = fleet.device("cam-1")
    check = device.connect(fingerprint="a").check()
    assert check.report_classes == asked
    with pytest.raises(InvalidInput, match="classes is"):
        device.answer(check, "a", classes=pack_classes([0], 9) if asked else pack_classes([0], 3))
    assert fleet.operator.run("run").checking == 1
    device.answer(check, "a")
    seen = fleet.operator.run("run")
    assert (seen.checking, seen.eligible, list(seen.absent_classes)) == (0, 1, [])
