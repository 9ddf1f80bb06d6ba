"""A device's hardware as operators see it."""

from __future__ import annotations

from moonfed.coordinator.cli.device_hardware import hardware_rows


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
