"""Formatting of the device list: status and hardware. `--json` has everything that devices reported."""

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
UNKNOWN = "-"  # a device that has never connected


def device_lines(devices: Sequence[control_pb2.Device]) -> list[str]:
    """Format a table with a line for each device."""
    return table(HEADS, [_row(device) for device in devices])


def _row(device: control_pb2.Device) -> list[str]:
    platform = device.platform
    return [
        device.device,
        "yes" if device.online else "no",
        "now" if device.online else moment(device.last_seen),
        moment(device.certificate_expires),
        _hardware(platform),
        _memory(platform),
        _trains_on(platform),
        platform.get("torch") or UNKNOWN,
        f"JetPack {platform['jetpack']}" if platform.get("jetpack") else platform.get("system") or UNKNOWN,
        write_labels(device.labels) or UNKNOWN,
    ]


def _hardware(platform: Mapping[str, str]) -> str:
    """Format the training hardware: the GPU if the device trains on it, else the processor."""
    processor = platform.get("processor") or platform.get("architecture") or UNKNOWN
    return platform.get("gpu") or processor if platform.get("accelerator") == "cuda" else processor


def _memory(platform: Mapping[str, str]) -> str:
    """Format a size given in bytes."""
    memory = platform.get("memory", "")
    return f"{int(memory) / 1e9:.1f} GB" if memory.isdecimal() else UNKNOWN


def _trains_on(platform: Mapping[str, str]) -> str:
    kind = platform.get("accelerator") or UNKNOWN
    detail = platform.get("cuda") if kind == "cuda" else platform.get("threads")
    if not detail:
        return kind
    return f"cuda {detail}" if kind == "cuda" else f"{kind}, {detail} thread{'s' if detail != '1' else ''}"
