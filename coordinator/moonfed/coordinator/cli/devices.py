"""Formatting of the device list: the current activity and last result of each device; and totals.

`device show` and `--json` have everything that is known of a device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from moonfed.control.devices import Device
from moonfed.coordinator.cli.format import ago
from moonfed.coordinator.cli.layout import COLUMNS, LINES, shorten, table, wrap
from moonfed.coordinator.devices.shared_identities import describe_shared
from moonfed.formatting import count

HEADS = ("device", "seen", "activity", "release", "rounds", "last result")
NAME, ACTIVITY = 20, 20  # columns at most, where the width is limited
UNKNOWN = "-"
RELEASES, WARNINGS = 3, 3  # named in the totals


def device_lines(devices: Sequence[Device], width: int | None = None) -> list[str]:
    """Format a table with a line for each device, and totals.

    With a `width`, lines have at most that many columns, and only the first devices are shown, so that there are at
    most `LINES` lines.
    """
    totals = [line for text in _totals(devices) for line in ([shorten(text, width)] if width else [text])]
    totals += [line for text in _warnings(devices) for line in wrap(text, width or COLUMNS)]
    most = len(devices) if width is None or len(devices) <= LINES - 1 - len(totals) else LINES - 2 - len(totals)
    lines = table(HEADS, [_row(device, width) for device in devices[:most]], width) if devices else []
    if most < len(devices):
        lines.append(f"and {count(len(devices) - most, 'more device')}: see --all, or choose with --label or --online")
    return [*lines, *totals]


def _row(device: Device, width: int | None) -> list[str]:
    cells = [device.device, _seen(device), activity(device), device.release or UNKNOWN, f"{device.rounds:,}"]
    if width:
        cells[0], cells[2] = shorten(cells[0], NAME), shorten(cells[2], ACTIVITY)
    return [*cells, last_result(device)]


def _seen(device: Device) -> str:
    if device.revoked:
        return "revoked"
    if device.shared_by:
        return "shared"
    if device.online:
        return "online"
    return ago(device.last_seen) if device.last_seen else UNKNOWN


def activity(device: Device) -> str:
    """Return the current assignment, with the number of the others."""
    if device.inference_only:
        return "inference only"
    if not device.online:
        return UNKNOWN
    if not device.activity:
        return "idle"
    current = device.activity[0]
    more = f" +{len(device.activity) - 1}" if len(device.activity) > 1 else ""
    return f"{current.run} {current.round} {100 * current.fraction:.0f}%{more}"


def last_result(device: Device) -> str:
    """Format why the device is ineligible, if that was asked, or the result of its last round."""
    if device.ineligible:
        return f"ineligible: {device.ineligible}"
    if device.last_result is None:
        return UNKNOWN
    result = device.last_result
    return f"{result.run} {result.round} {result.outcome}" + (f": {result.reason}" if result.reason else "")


def _warnings(devices: Sequence[Device]) -> list[str]:
    """Name the devices whose identity several machines use."""
    shared = [device for device in devices if device.shared_by]
    found = [describe_shared(device.device, device.shared_by) for device in shared[:WARNINGS]]
    return [*found, f"so do those of {count(len(shared) - WARNINGS, 'more device')}"] if shared[WARNINGS:] else found


def _totals(devices: Sequence[Device]) -> list[str]:
    """Summarise the devices by activity and by release."""
    online = sum(device.online for device in devices)
    training = sum(bool(device.activity) for device in devices)
    revoked = sum(bool(device.revoked) for device in devices)
    parts = [f"{online:,} online ({training:,} training, {online - training:,} idle)"]
    parts += [f"{len(devices) - online - revoked:,} offline"]
    parts += [f"{revoked:,} revoked"] if revoked else []
    lines = [f"{count(len(devices), 'device')}: {', '.join(parts)}"]
    releases = Counter(device.release for device in devices if device.release).most_common()
    if len(releases) > 1:
        named = ", ".join(f"{release} on {number:,}" for release, number in releases[:RELEASES])
        rest = sum(number for _, number in releases[RELEASES:])
        lines += [f"releases: {named}" + (f", others on {rest:,}" if rest else "")]
    return lines
