"""The operator's view of the fleet."""

from __future__ import annotations

from moonfed.coordinator.cli.devices import HEADS, device_lines
from moonfed.v1 import control_pb2


def cells(**platform: str) -> dict[str, str]:
    """Return the line of one device, by column."""
    head, line = device_lines([control_pb2.Device(device="cam-1", online=True, platform=platform)])
    starts = [head.index(name) for name in HEADS]
    ends = [*starts[1:], None]
    return {name: line[start:end].strip() for name, start, end in zip(HEADS, starts, ends, strict=True)}


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
        "device": "cam-1",
        "online": "yes",
        "last seen": "now",
        "certificate until": "-",
        "hardware": "NVIDIA Jetson Orin Nano",
        "memory": "8.0 GB",
        "trains on": "cuda 12.6",
        "torch": "2.8.0",
        "system": "JetPack 6.2+b77",
        "labels": "-",
    }


def test_a_device_that_trains_on_its_processor_shows_that() -> None:
    shown = cells(processor="AMD EPYC", gpu="NVIDIA L4", accelerator="cpu", threads="1", system="Debian 12")
    assert (shown["hardware"], shown["trains on"], shown["system"]) == ("AMD EPYC", "cpu, 1 thread", "Debian 12")


def test_a_device_of_an_earlier_release_shows_what_it_reported() -> None:
    shown = cells(architecture="x86_64", python="3.11.7", torch="2.6", accelerator="cpu")
    assert (shown["hardware"], shown["memory"], shown["trains on"]) == ("x86_64", "-", "cpu")
    assert cells(memory="much")["memory"] == "-"


def test_a_device_that_has_left_shows_when() -> None:
    (_, line) = device_lines([control_pb2.Device(device="cam-1", last_seen=1_700_000_000.0)])
    assert line.split()[:5] == ["cam-1", "no", "2023-11-14", "22:13:20", "UTC"]


def test_a_device_that_was_never_online_is_listed() -> None:
    assert cells()["hardware"] == "-"
