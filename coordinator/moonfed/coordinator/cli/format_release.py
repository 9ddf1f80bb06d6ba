"""Formatting of releases, deployments, and the devices that deployments have chosen."""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.control.releases import DeployedDevice, Deployment, Release
from moonfed.coordinator.cli.format import ago, moment
from moonfed.coordinator.cli.layout import LINES, shorten, table, wrap
from moonfed.formatting import count, measured, number_text
from moonfed.labels import write_labels

NAME = 24  # columns of a device's name at most, where the width is limited
UNKNOWN = "-"
# The states that need an operator's attention come first, those in which nothing happens last.
STATES = ("fell-back", "failed", "declined", "accepted", "pending", "returning", "installed", "returned", "superseded")
RELEASE_HEADS = ("release", "version", "created", "run", "round", "score", "variants")
DEPLOYMENT_HEADS = ("release", "number", "version", "status", "devices", "states")
DEVICE_HEADS = ("device", "seen", "state", "has", "reported", "score", "reason")


def release_lines(releases: Sequence[Release], width: int | None = None) -> list[str]:
    """Format a table of releases."""
    rows = [
        [
            release.name,
            str(release.version),
            moment(release.created),
            release.run,
            str(release.round),
            _released_score(release),
            ", ".join(release.variants),
        ]
        for release in releases
    ]
    return table(RELEASE_HEADS, rows, width)


def release_details(release: Release) -> list[str]:
    """Format one release: a line for each fact."""
    facts = {
        "release": release.name,
        "version": str(release.version),
        "created": f"{moment(release.created)} by {release.operator}",
        "run": f"{release.run}, round {release.round}",
        "predicts": release.target.describe(),
        release.metric.name: _released_score(release)
        + (f" on {count(release.samples, 'sample')}" if release.score is not None else ""),
        **({release.target.named: ", ".join(release.target.names_with_units)} if release.target.names else {}),
    }
    facts |= {name: f"{model.size / 1e6:.2f} MB" for name, model in release.variants.items()}
    facts |= {"manifest": release.manifest.sha256}
    longest = max(map(len, facts))
    return [f"{name.ljust(longest)}  {value}" for name, value in facts.items()]


def deployment_line(deployment: Deployment) -> str:
    """Format a deployment in one line."""
    what = f"version {deployment.version} of {deployment.name}"
    what += f" ({deployment.variant})" if deployment.variant != "float32" else ""
    line = f"deployment {deployment.number}: {what} to {_selection(deployment)}, {deployment.status}"
    states = _states(deployment)
    return f"{line}; {states}" if states else line


def withdrawal(deployments: Sequence[Deployment]) -> str:
    """Describe the roll-back of deployments, oldest first, for an operator to confirm."""
    ends = [
        f"version {one.version} of {one.name} (deployment {one.number}) from {_selection(one)}" for one in deployments
    ]
    left = f"; {stranding(deployments[0])}" if deployments[0].stranded else ""
    return f"Withdraw {' and '.join(reversed(ends))}, which return to what they had before{left}"


def stranding(deployment: Deployment) -> str:
    """Say how many devices the roll-back of a deployment and all newer ones leaves without a model."""
    left = deployment.stranded
    verb = "has" if left == 1 else "have"
    return f"{count(left, 'device')} {verb} no earlier version of {deployment.name} and will predict with none"


def deployment_lines(deployments: Sequence[Deployment], width: int | None = None) -> list[str]:
    """Format a table of deployments."""
    rows = [
        [
            deployment.name,
            str(deployment.number),
            str(deployment.version),
            deployment.status,
            f"{deployment.chosen:,} of {deployment.matching:,}",
            _states(deployment),
        ]
        for deployment in deployments
    ]
    return table(DEPLOYMENT_HEADS, rows, width)


def status_lines(
    deployments: Sequence[Deployment],
    devices: Sequence[DeployedDevice],
    width: int | None = None,
) -> list[str]:
    """Format the deployments of one release, newest first, and its devices, those with problems first.

    With a `width`, lines have at most that many columns, and there are at most `LINES` lines.
    """
    newest, *earlier = sorted(deployments, key=lambda deployment: -deployment.number)
    line = deployment_line(newest)
    lines = [line] if width is None else wrap(line, width)
    lines += [deployment_line(one) if width is None else shorten(deployment_line(one), width) for one in earlier][
        : len(earlier) if width is None else 3
    ]
    return [*lines, *_device_lines(_ordered(devices), width, LINES - len(lines))] if devices else lines


def _device_lines(devices: Sequence[DeployedDevice], width: int | None, most: int) -> list[str]:
    """Format a table of devices; with a `width`, at most `most` lines, with reasons that do not fit below."""
    rows = [_device(device, width) for device in devices[: len(devices) if width is None else most]]
    head, *lines = table(DEVICE_HEADS, rows)
    if width is None:
        return [head, *lines]
    short = table(DEVICE_HEADS[:-1], [row[:-1] for row in rows], width)[1:]
    entries = [
        [line] if len(line) <= width else [without, *wrap(f"  {row[-1]}", width)]
        for line, without, row in zip(lines, short, rows, strict=True)
    ]
    found, shown = [shorten(head, width)], 0
    for number, entry in enumerate(entries, start=1):
        if len(found) + len(entry) + (number < len(devices)) > most:  # with the line that counts the others
            break
        found, shown = [*found, *entry], number
    rest = len(devices) - shown
    return [*found, f"and {count(rest, 'more device')}: see --all"] if rest else found


def _ordered(devices: Sequence[DeployedDevice]) -> list[DeployedDevice]:
    place = {state: number for number, state in enumerate(STATES)}
    return sorted(devices, key=lambda device: (place.get(device.state, len(STATES)), device.device))


def _device(device: DeployedDevice, width: int | None) -> list[str]:
    name = shorten(device.device, NAME) if width else device.device
    reported = ago(device.reported) if device.reported else UNKNOWN
    has = f"v{device.installed}" if device.installed else "none"
    return [name, "online" if device.online else "offline", device.state, has, reported, _score(device), device.reason]


def _score(device: DeployedDevice) -> str:
    if device.score is None:
        return UNKNOWN
    before = "" if device.current_score is None else f" from {_figure(device.current_score)}"
    return f"{_figure(device.score)}{before}"


def _figure(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 or not value else measured(value)


def _states(deployment: Deployment) -> str:
    return ", ".join(f"{deployment.states[state]:,} {state}" for state in STATES if deployment.states.get(state))


def _selection(deployment: Deployment) -> str:
    trusted = "trusted " if deployment.trusted_labels else ""
    which = f" with {trusted}{write_labels(deployment.labels)}" if deployment.labels else ""
    return (
        f"{deployment.chosen:,} of {count(deployment.matching, 'device')}{which} ({number_text(deployment.percent)} %)"
    )


def _released_score(release: Release) -> str:
    return UNKNOWN if release.score is None else measured(release.score, release.metric.unit)
