"""Formatting of the device list: status and hardware. `--json` has everything that devices report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moonfed.coordinator.cli.format import moment, table
from moonfed.labels import write_labels
from moonfed.v1 import control_pb2

HEADS = (
    "device",
    "online",
    "last seen",
    "certificate until",
    "hardware",
    "memory",
    "trains on",
    "torch",
    "system",
    "labels",
)
UNSAID = "-"  # by devices that have never connected


def device_lines(devices: Sequence[control_pb2.Device]) -> list[str]:
    """Format a table with a line for each device."""
    return table(HEADS, [_row(device) for device in devices])


def _row(device: control_pb2.Device) -> list[str]:
    said = device.platform
    return [
        device.device,
        "yes" if device.online else "no",
        "now" if device.online else moment(device.last_seen),
        moment(device.certificate_expires),
        _hardware(said),
        _memory(said),
        _trains_on(said),
        said.get("torch") or UNSAID,
        f"JetPack {said['jetpack']}" if said.get("jetpack") else said.get("system") or UNSAID,
        write_labels(device.labels) or UNSAID,
    ]


def _hardware(said: Mapping[str, str]) -> str:
    """Format the training hardware: the GPU if the device trains on it, else the processor."""
    processor = said.get("processor") or said.get("architecture") or UNSAID
    return said.get("gpu") or processor if said.get("accelerator") == "cuda" else processor


def _memory(said: Mapping[str, str]) -> str:
    """Format a size given in bytes."""
    memory = said.get("memory", "")
    return f"{int(memory) / 1e9:.1f} GB" if memory.isdecimal() else UNSAID


def _trains_on(said: Mapping[str, str]) -> str:
    kind = said.get("accelerator") or UNSAID
    detail = said.get("cuda") if kind == "cuda" else said.get("threads")
    if not detail:
        return kind
    return f"cuda {detail}" if kind == "cuda" else f"{kind}, {detail} thread{'s' if detail != '1' else ''}"
