"""Temperatures and power of the board, from Linux's sysfs: thermal zones, and power monitors such as Jetson's INA3221.

What the board does not expose is left out, and so is a sensor that cannot be read, such as that of a part that is off.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")
INA3221_CHANNELS = (1, 2, 3)  # the others are sums, and shunt voltages


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """One sensor's value: °C or W. `sensor` is unique on the board, `name` is the manufacturer's."""

    sensor: str
    name: str
    value: float


def temperatures(sysfs: Path = SYSFS) -> list[Reading]:
    """Return the temperatures of the thermal zones in °C."""
    found = []
    for zone in sysfs.glob("class/thermal/thermal_zone*"):
        millidegrees = _number(zone / "temp")
        if millidegrees is not None:
            found.append(Reading(zone.name, _text(zone / "type") or zone.name, millidegrees / 1000))
    return sorted(found)


def powers(sysfs: Path = SYSFS) -> list[Reading]:
    """Return the power of the board's rails in W."""
    found = []
    for monitor in sysfs.glob("class/hwmon/hwmon*"):
        found += _ina3221(monitor) if _text(monitor / "name") == "ina3221" else _power_inputs(monitor)
    for device in sysfs.glob("bus/i2c/drivers/ina3221x/*/iio:device*"):  # Jetsons up to JetPack 4
        found += _iio_rails(device)
    return sorted(found)


def _ina3221(monitor: Path) -> list[Reading]:
    found = []
    for channel in INA3221_CHANNELS:
        millivolts, milliamperes = _number(monitor / f"in{channel}_input"), _number(monitor / f"curr{channel}_input")
        if millivolts is not None and milliamperes is not None:
            name = _text(monitor / f"in{channel}_label") or f"channel {channel}"
            found.append(Reading(f"{monitor.name}/{channel}", name, millivolts * milliamperes / 1e6))
    return found


def _power_inputs(monitor: Path) -> list[Reading]:
    found = []
    for file in monitor.glob("power*_input"):
        microwatts, sensor = _number(file), file.name.removesuffix("_input")
        if microwatts is not None:
            name = _text(monitor / f"{sensor}_label") or _text(monitor / "name") or sensor
            found.append(Reading(f"{monitor.name}/{sensor.removeprefix('power')}", name, microwatts / 1e6))
    return found


def _iio_rails(device: Path) -> list[Reading]:
    found = []
    for file in device.glob("rail_name_*"):
        channel = file.name.removeprefix("rail_name_")
        milliwatts = _number(device / f"in_power{channel}_input")
        if milliwatts is not None:
            sensor = f"{device.parent.name}/{device.name}/{channel}"
            found.append(Reading(sensor, _text(file) or sensor, milliwatts / 1000))
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> float | None:
    try:
        return float(_text(file))
    except ValueError:
        return None
