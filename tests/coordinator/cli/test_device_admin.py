"""The commands that administer a device, in processes of their own."""

from __future__ import annotations

import json
import subprocess

from moonfed.coordinator.cli.device_admin import hardware_rows
from moonfed.transport.identity import load_identity, read_certificate
from moonfed.v1 import control_pb2
from tests.support.coordinator_programs import PROGRAM, Programs


def test_a_device_is_shown_with_labels_certificates_and_platform(programs: Programs) -> None:
    programs.serve()
    session = programs.device("cam-1").connect(labels={"site": "rome", "tier": "1"})
    programs.command("device", "label", "cam-1", "site=ulm")
    serial = read_certificate(load_identity(programs.tmp / "cam-1").certificate).serial
    lines = dict(line.split("  ", 1) for line in programs.command("device", "show", "cam-1").splitlines())
    facts = {name: value.strip() for name, value in lines.items()}
    assert (facts["device"], facts["status"], facts["last seen"]) == ("cam-1", "online", "now")
    assert (facts["operator's labels"], facts["own labels"]) == ("site=ulm", "tier=1")
    assert facts["certificate"].startswith(f"{serial}, valid until ")
    shown = json.loads(programs.command("device", "show", "cam-1", "--json"))
    assert [one["serial"] for one in shown["certificates"]] == [serial]
    assert (shown["labels"], shown["operator_labels"]) == ({"site": "ulm", "tier": "1"}, {"site": "ulm"})
    session.leave()
    assert "there is no device 'cam-7'" in programs.command("device", "show", "cam-7", code=3)


def test_a_device_is_revoked_renamed_labelled_and_removed(programs: Programs) -> None:
    programs.serve()
    for name in ("cam-1", "cam-2"):
        programs.device(name)
    output = programs.command("device", "revoke", "cam-1")
    assert output == "revoked cam-1; it can return with: moonfed-coordinator token create --device cam-1\n"
    assert "revoked on " in programs.command("device", "show", "cam-1")
    assert json.loads(programs.command("device", "show", "cam-1", "--json"))["certificates"][0]["reason"] == "revoked"
    output = programs.command("device", "rename", "cam-2", "gate")
    assert output == "renamed cam-2 to gate; it renews its certificate at its next call\n"
    assert "name is 'Gate'" in programs.command("device", "rename", "gate", "Gate", code=2)
    assert "already a device 'cam-1'" in programs.command("device", "rename", "gate", "cam-1", code=4)
    output = programs.command("device", "label", "gate", "site=ulm", "tier=1", "--remove", "camera")
    assert output == "gate has these labels of operators: site=ulm, tier=1\n"
    output = programs.command("device", "label", "gate", "--remove", "site", "--remove", "tier")
    assert output == "gate has these labels of operators: none\n"
    assert "labels are missing" in programs.command("device", "label", "gate", code=2)
    assert "label is 'site'" in programs.command("device", "label", "gate", "site", code=2)
    assert programs.command("device", "remove", "gate", "--yes") == "removed gate\n"
    assert "there is no device 'gate'" in programs.command("device", "remove", "gate", "--yes", code=3)
    assert [device["device"] for device in json.loads(programs.command("device", "list", "--json"))] == ["cam-1"]


def test_removing_a_device_asks_first(programs: Programs) -> None:
    programs.serve()
    programs.device("cam-1")
    command = [*PROGRAM, "device", "remove", "cam-1", "--identity", str(programs.state / "operator")]
    done = subprocess.run(command, input="n\n", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "Remove device cam-1?" in done.stderr
    request = control_pb2.GetDeviceRequest(device="cam-1")
    assert programs.operator().control.GetDevice(request).device == "cam-1"


def test_without_tls_nothing_can_be_revoked(programs: Programs) -> None:
    ports = programs.serve("--insecure")
    for words in (("revoke", "cam-1"), ("rename", "cam-1", "gate")):
        options = ("--insecure", "--coordinator", f"127.0.0.1:{ports['fleet_port']}")
        output = programs.command("device", *words, *options, code=4)
        assert "runs with --insecure" in output


def cells(**platform: str) -> dict[str, str]:
    return dict(hardware_rows(platform))


def test_a_jetson_shows_its_board_and_jetpack() -> None:
    shown = cells(
        architecture="aarch64",
        processor="NVIDIA Jetson Orin Nano",
        gpu="NVIDIA Jetson Orin Nano",
        memory=str(7_802_492 * 1024),
        accelerator="cuda",
        cuda="12.6",
        threads="6",
        torch="2.8.0",
        jetpack="6.2+b77",
        system="Ubuntu 22.04.5 LTS",
    )
    assert shown == {
        "hardware": "NVIDIA Jetson Orin Nano",
        "memory": "8.0 GB",
        "trains on": "cuda 12.6",
        "torch": "2.8.0",
        "system": "JetPack 6.2+b77",
    }


def test_a_device_that_trains_on_its_processor_shows_that() -> None:
    shown = cells(processor="AMD EPYC", gpu="NVIDIA L4", accelerator="cpu", threads="1", system="Debian 12")
    assert (shown["hardware"], shown["trains on"], shown["system"]) == ("AMD EPYC", "cpu, 1 thread", "Debian 12")


def test_a_device_of_an_earlier_release_shows_what_it_reported() -> None:
    shown = cells(architecture="x86_64", python="3.11.7", torch="2.6", accelerator="cpu")
    assert (shown["hardware"], shown["memory"], shown["trains on"]) == ("x86_64", "-", "cpu")
    assert cells(memory="much")["memory"] == "-"


def test_a_device_that_was_never_online_is_listed() -> None:
    assert set(cells().values()) == {"-"}
