"""Administration of devices over real TLS: what it means for the devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from moonfed.coordinator.devices import registry_poll
from moonfed.coordinator.storage.opening import open_storage
from moonfed.errors import Denied, NotFound, Renamed, Unavailable, Untrusted, WrongState
from moonfed.transport import client as transport
from moonfed.transport.identity import Identity, key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.v1 import blob_pb2, control_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support import coordinator
from tests.support.coordinator import Device, answered, ask, model_bytes, rejected

Until = Callable[[Callable[[], bool]], None]
ALL = "all"


def revoke(fleet: Fleet, device: str) -> None:
    ask(fleet.operator.control.RevokeDevice, control_pb2.RevokeDeviceRequest(device=device))


def remove(fleet: Fleet, device: str) -> None:
    ask(fleet.operator.control.RemoveDevice, control_pb2.RemoveDeviceRequest(device=device))


def rename(fleet: Fleet, device: str, name: str) -> None:
    ask(fleet.operator.control.RenameDevice, control_pb2.RenameDeviceRequest(device=device, name=name))


def label(fleet: Fleet, device: str, **labels: str) -> None:
    ask(fleet.operator.control.LabelDevice, control_pb2.LabelDeviceRequest(device=device, labels=labels))


def token_for(fleet: Fleet, device: str) -> str:
    request = control_pb2.CreateTokenRequest(uses=1, valid_seconds=60.0, device=device)
    return str(ask(fleet.operator.control.CreateToken, request).token)


def renewal(name: str) -> fleet_pb2.RenewRequest:
    return fleet_pb2.RenewRequest(device=name, signing_request=signing_request(new_key(), name))


def device_of(fleet: Fleet, identity: Identity) -> Device:
    return Device(identity.name, fleet.stack.enter_context(transport.open_channel(identity.address, identity)))


def renewed(fleet: Fleet, device: Device, directory: str) -> Device:
    """Renew a device's certificate; return the device with it."""
    key, held = new_key(), load_identity(fleet.tmp / directory)
    request = fleet_pb2.RenewRequest(device=device.name, signing_request=signing_request(key, device.name))
    certificate = answered(lambda: ask(device.fleet.Renew, request)).certificate
    place = fleet.tmp / f"{directory}-renewed"
    save_identity(place, address=held.address, ca=held.ca, certificate=certificate, key=key_bytes(key))
    return device_of(fleet, load_identity(place))


def fetch(device: Device, sha256: str) -> bytes:
    request = blob_pb2.FetchRequest(device=device.name, sha256=sha256)
    return b"".join(
        part.data for part in ask(lambda asked, timeout: list(device.fleet.Fetch(asked, timeout=timeout)), request)
    )


def successor(fleet: Fleet, name: str) -> Device:
    """Enrol another device under the name of one that was removed or renamed."""
    return device_of(fleet, coordinator.enrol(fleet.tmp / "successor", fleet.operator.token(), name))


def second_round(fleet: Fleet) -> tuple[list[Device], list[coordinator.DeviceSession], list[fleet_pb2.Assignment]]:
    """Start a run of two rounds, which need both devices, and play the first."""
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(rounds=2, minimum_devices=2, quorum=ALL)
    sessions = [device.connect() for device in devices]
    for device, session in zip(devices, sessions, strict=True):
        device.submit(session.assignment(), model_bytes(1.0))
    return devices, sessions, [session.assignment() for session in sessions]


def counted(fleet: Fleet) -> list[list[str]]:
    return [list(entry.counted) for entry in fleet.operator.rounds("run")]


def test_a_revoked_devices_streams_end_and_it_cannot_renew(fleet: Fleet) -> None:
    device, other = fleet.device("cam-1"), fleet.device("cam-2")
    session, staying = device.connect(), other.connect()
    revoke(fleet, "cam-1")
    with pytest.raises(Unavailable):
        session.next()
    rejected(device.connect, Untrusted, "'cam-1' was revoked")
    with pytest.raises(Untrusted, match="was revoked by an operator"):
        ask(device.fleet.Renew, renewal("cam-1"))
    assert staying.call.is_active()


@pytest.mark.parametrize(
    "act", [revoke, remove, lambda fleet, device: rename(fleet, device, "gate")], ids=["revoke", "remove", "rename"]
)
def test_a_change_is_in_effect_when_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Fleet, str], None]
) -> None:
    monkeypatch.setattr(registry_poll, "POLL_SECONDS", 3600.0)
    with fleet_in(tmp_path) as fleet:
        device = fleet.device("cam-1")
        act(fleet, "cam-1")
        with pytest.raises(Untrusted):
            ask(device.fleet.Leave, fleet_pb2.LeaveRequest(device="cam-1"))


def test_a_revoked_device_in_the_middle_of_an_upload_is_cut_off(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    fleet.start()
    work = device.connect().assignment()
    call = device.begin_upload(work, model_bytes(1.0))
    revoke(fleet, "cam-1")
    with pytest.raises(Unavailable):
        ask(lambda _request, timeout: next(call), None)
    assert not fleet.operator.run("run").open_round.reported


def test_a_round_loses_a_revoked_device_at_once_and_after_a_restart(tmp_path: Path, until: Until) -> None:
    with fleet_in(tmp_path) as fleet:
        devices, names = [fleet.device(name) for name in ("cam-1", "cam-2")], ["cam-2"]
        fleet.start(minimum_devices=2, quorum=1)
        sessions = [device.connect() for device in devices]
        work = [session.assignment() for session in sessions]
        assert not devices[1].report(work[1], 0.5).stop, "its heartbeat is recent"
        revoke(fleet, "cam-2")
        until(lambda: list(fleet.operator.run("run").open_round.lost) == names)
    with fleet_in(tmp_path) as again:
        until(lambda: list(again.operator.run("run").open_round.lost) == names)
        identity = load_identity(tmp_path / "cam-1")
        with transport.open_channel(f"127.0.0.1:{again.ports.fleet}", identity) as channel:
            device = Device("cam-1", channel)
            device.submit(device.connect().assignment(), model_bytes(1.0))
        until(lambda: again.operator.run("run").status == "finished")
        assert [(list(entry.counted), list(entry.missing)) for entry in again.operator.rounds("run")] == [
            (["cam-1"], names)
        ]


@pytest.mark.parametrize("act", [remove, lambda fleet, device: rename(fleet, device, "gate")], ids=["remove", "rename"])
def test_an_idle_device_replaces_one_that_is_removed_or_renamed(
    fleet: Fleet, until: Until, act: Callable[[Fleet, str], None]
) -> None:
    fleet.start(minimum_devices=2, cohort=1)
    devices = {name: fleet.device(name) for name in ("cam-1", "cam-2")}
    sessions = {name: device.connect() for name, device in devices.items()}
    until(lambda: bool(fleet.operator.run("run").open_round.cohort))
    (drawn,) = fleet.operator.run("run").open_round.cohort
    idle = next(name for name in devices if name != drawn)
    act(fleet, drawn)
    devices[idle].submit(sessions[idle].assignment(), model_bytes(1.0))
    until(lambda: fleet.operator.run("run").status == "finished")
    assert counted(fleet) == [[idle]]


@pytest.mark.parametrize(
    "act", [remove, revoke, lambda fleet, device: rename(fleet, device, "gate")], ids=["remove", "revoke", "rename"]
)
def test_a_run_does_not_show_a_removed_renamed_or_revoked_device_as_ineligible(
    fleet: Fleet, until: Until, act: Callable[[Fleet, str], None]
) -> None:
    fleet.start()
    sessions = {}
    for name in ("cam-1", "cam-2"):
        device = fleet.device(name)
        sessions[name] = device.connect(fingerprint="a")
        device.answer(sessions[name].check(), "a", f"{name} has no data")

    def shown() -> list[str]:
        return sorted(group.reason for group in fleet.operator.run("run").ineligible)

    until(lambda: shown() == ["cam-1 has no data", "cam-2 has no data"])
    act(fleet, "cam-1")
    until(lambda: shown() == ["cam-2 has no data"])
    fleet.operator.control.StopRun(control_pb2.StopRunRequest(run="run"))
    assert shown() == ["cam-2 has no data"]


def test_every_certificate_of_a_revoked_device_is_rejected(fleet: Fleet) -> None:
    first = fleet.device("cam-1")
    second = renewed(fleet, first, "cam-1")
    assert second.connect()
    revoke(fleet, "cam-1")
    for device in (first, second):
        rejected(device.connect, Untrusted, "was revoked")


def test_a_revoked_device_returns_with_another_key_and_its_old_certificate_stays_invalid(fleet: Fleet) -> None:
    old = fleet.device("cam-1")
    revoke(fleet, "cam-1")
    new = device_of(fleet, coordinator.enrol(fleet.tmp / "board", token_for(fleet, "cam-1"), "cam-1"))
    assert new.connect()
    rejected(old.connect, Untrusted, "was revoked")


def test_a_reflashed_board_continues_its_run_under_its_name(fleet: Fleet, until: Until) -> None:
    (old, other), sessions, work = second_round(fleet)
    other.submit(work[1], model_bytes(1.0))
    token = token_for(fleet, "cam-1")
    assert not old.report(work[0], 0.5).stop, "until the board has enrolled, the old certificate is accepted"
    new = device_of(fleet, coordinator.enrol(fleet.tmp / "board", token, "cam-1"))
    with pytest.raises(Unavailable):
        sessions[0].next()
    rejected(old.connect, Untrusted, "was replaced")
    assert new.connect().assignment() == work[0]
    new.submit(work[0], model_bytes(2.0))
    until(lambda: fleet.operator.run("run").status == "finished")
    assert counted(fleet) == [["cam-1", "cam-2"]] * 2


def test_a_removed_devices_updates_stay_counted(fleet: Fleet, until: Until) -> None:
    """One update is in a model, the other in the open round."""
    (device, other), _, work = second_round(fleet)
    device.submit(work[0], model_bytes(3.0))
    remove(fleet, "cam-1")
    rejected(device.connect, Untrusted, "removed")
    other.submit(work[1], model_bytes(1.0))
    until(lambda: fleet.operator.run("run").status == "finished")
    assert counted(fleet) == [["cam-1", "cam-2"]] * 2
    with pytest.raises(NotFound, match="there is no device 'cam-1'"):
        ask(fleet.operator.control.GetDevice, control_pb2.GetDeviceRequest(device="cam-1"))
    listed = fleet.operator.devices()
    assert [entry.device for entry in listed] == ["cam-2"]


def test_a_renamed_device_may_only_renew_under_its_new_name(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    session = device.connect()
    rename(fleet, "cam-1", "gate")
    with pytest.raises(Unavailable):
        session.next()
    rejected(device.connect, Renamed, "to 'gate'")
    work = fleet_pb2.Assignment(run="run", round=1, attempt=1)
    rejected(lambda: device.report(work, 0.5), Renamed, "'gate'")
    rejected(lambda: device.submit(work, model_bytes(1.0)), Renamed, "'gate'")
    gate = renewed(fleet, device, "cam-1")
    assert gate.name == "gate"
    assert answered(gate.connect)
    rejected(device.connect, Renamed, "'gate'")
    rejected(lambda: ask(device.fleet.Renew, renewal("gate")), Denied, "it may not act for 'gate'")


@pytest.mark.parametrize("act", [remove, lambda fleet, device: rename(fleet, device, "gate")], ids=["remove", "rename"])
def test_a_device_that_gets_the_name_of_another_one_may_not_fetch_its_models(
    tmp_path: Path, until: Until, act: Callable[[Fleet, str], None]
) -> None:
    with fleet_in(tmp_path) as fleet:
        (device, other), _, work = second_round(fleet)
        blobs = [work[0].manifest.sha256, work[0].blobs["model"].sha256]
        assert all(fetch(device, sha256) for sha256 in blobs), "the coordinator has looked up who may"
        device.submit(work[0], model_bytes(3.0))
        act(fleet, "cam-1")
        new = successor(fleet, "cam-1")
        for sha256 in blobs:
            rejected(partial(fetch, new, sha256), NotFound, "belongs to no run that device 'cam-1' participates in")
        other.submit(work[1], model_bytes(1.0))  # the round counts the former device's update, too
        until(lambda: fleet.operator.run("run").status == "finished")
        assert counted(fleet) == [["cam-1", "cam-2"]] * 2
        blobs.append(fleet.operator.run("run").model.sha256)
        assert new.connect(runs=["run"]).ended().run == "run"
        (shown,) = [entry for entry in fleet.operator.devices() if entry.device == "cam-1"]
        assert (shown.rounds, shown.HasField("last_result")) == (0, False)
    with fleet_in(tmp_path) as fleet:
        identities = [load_identity(tmp_path / name) for name in ("successor", "cam-2")]
        again = [device_of(fleet, replace(each, address=f"127.0.0.1:{fleet.ports.fleet}")) for each in identities]
        for sha256 in blobs:
            rejected(partial(fetch, again[0], sha256), NotFound, "belongs to no run")
            assert fetch(again[1], sha256)


@pytest.mark.parametrize("act", [remove, lambda fleet, device: rename(fleet, device, "gate")], ids=["remove", "rename"])
def test_a_device_that_gets_the_name_of_another_one_does_not_take_its_place_in_a_round(
    tmp_path: Path, until: Until, act: Callable[[Fleet, str], None]
) -> None:
    with fleet_in(tmp_path) as fleet:
        devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
        for device in devices:
            label(fleet, device.name, site="ulm")
        fleet.start(minimum_devices=2, quorum=1, labels={"site": "ulm"}, trusted_labels=True)
        work = [session.assignment() for session in [device.connect() for device in devices]]
        act(fleet, "cam-1")
        new = successor(fleet, "cam-1")
        with pytest.raises(WrongState, match="'cam-1'"):
            new.submit(work[0], model_bytes(1000.0))
        assert list(fleet.operator.run("run").open_round.declined) == ["cam-1"]
    with fleet_in(tmp_path) as fleet:
        for name in ("successor", "cam-2"):
            identity = load_identity(tmp_path / name)
            device = device_of(fleet, replace(identity, address=f"127.0.0.1:{fleet.ports.fleet}"))
            device.connect()
            if name == "successor":
                with pytest.raises(WrongState, match="'cam-1'"):
                    device.submit(work[0], model_bytes(1000.0))
            else:
                device.submit(work[1], model_bytes(1.0))
        until(lambda: fleet.operator.run("run").status == "finished")
        assert counted(fleet) == [["cam-2"]]


def test_a_device_that_was_removed_at_another_replica_is_not_awaited_after_a_restart(
    tmp_path: Path, until: Until
) -> None:
    with fleet_in(tmp_path) as fleet:
        devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
        fleet.start(minimum_devices=2, quorum=1)
        work = [session.assignment() for session in [device.connect() for device in devices]]
    with open_storage(tmp_path / "state") as storage:
        storage.store.devices.remove("cam-1")
    with fleet_in(tmp_path) as fleet:
        new = successor(fleet, "cam-1")
        session = new.connect()
        with pytest.raises(WrongState, match="'cam-1' has declined"):
            new.submit(work[0], model_bytes(1000.0))
        identity = load_identity(tmp_path / "cam-2")
        device_of(fleet, replace(identity, address=f"127.0.0.1:{fleet.ports.fleet}")).submit(work[1], model_bytes(1.0))
        until(lambda: fleet.operator.run("run").status == "finished")
        assert counted(fleet) == [["cam-2"]]
        assert session.replies.empty(), "neither an assignment nor the model"


def test_a_run_may_select_by_labels_that_operators_set(fleet: Fleet, until: Until) -> None:
    liar, honest = fleet.device("cam-1"), fleet.device("cam-2")
    fleet.start(labels={"site": "ulm"}, trusted_labels=True)
    liar.connect(labels={"site": "ulm"})
    session = honest.connect()
    until(lambda: "without the trusted label site=ulm" in fleet.operator.run("run").waiting)
    label(fleet, "cam-2", site="ulm")
    honest.submit(session.assignment(), model_bytes(1.0))
    until(lambda: fleet.operator.run("run").status == "finished")
    assert counted(fleet) == [["cam-2"]]


def test_an_operators_label_overrides_the_devices_own(fleet: Fleet, until: Until) -> None:
    moved, other = fleet.device("cam-1"), fleet.device("cam-2")
    label(fleet, "cam-1", site="berlin")
    for device in (moved, other):
        device.connect(labels={"site": "ulm"})
    for site, names in (("ulm", ["cam-2"]), ("berlin", ["cam-1"])):
        fleet.start(site, labels={"site": site})
        until(lambda site=site: bool(fleet.operator.run(site).open_round.cohort))  # type: ignore[misc]
        assert list(fleet.operator.run(site).open_round.cohort) == names
