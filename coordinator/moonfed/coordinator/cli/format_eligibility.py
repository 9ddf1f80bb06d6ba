"""Formatting of the devices that are eligible for a run, and of those that are not, by reason."""

from __future__ import annotations

from moonfed.control.runs import Ineligible, Run
from moonfed.coordinator.cli.layout import listed, shorten, wrap
from moonfed.formatting import count

LONG, SHORT = (8, 8), (3, 3)  # reasons, and names for each; --json has all
ROOM = 4  # lines of a terminal for all reasons: long ones take what the others leave


def eligibility_lines(run: Run, width: int | None = None) -> list[str]:
    """Format the number of eligible devices, and the ineligible ones by reason, the most frequent reasons first.

    Nothing while no device is ineligible or checking. With a `width`, fewer reasons and names, and only the beginning
    of a long reason, in a few lines of at most that many columns.
    """
    number = sum(len(group.devices) for group in run.ineligible)
    if not number and not run.checking:
        return []
    reasons, names = SHORT if width else LONG
    parts = [f"eligible: {run.eligible:,}"]
    parts += [f"still checking: {run.checking:,}"] if run.checking else []
    parts += [f"not eligible: {number:,}"] if number else []
    lines = [f"devices {', '.join(parts)}"]
    groups = sorted(run.ineligible, key=lambda group: (-len(group.devices), group.reason))
    rest = len(groups) - reasons
    more = [f"  and {count(rest, 'more reason')}, which --json lists"] if rest > 0 else []
    if width is None:
        return [*lines, *(f"  {_reason(group)}: {listed(group.devices, names)}" for group in groups[:reasons]), *more]
    room = ROOM - len(more)
    for index, group in enumerate(groups[:reasons], 1):
        found = _wrapped(group, names, width, room - (min(len(groups), reasons) - index))
        lines, room = [*lines, *found], room - len(found)
    return [shorten(line, width) for line in [*lines, *more]]


def _reason(group: Ineligible) -> str:
    return f"{len(group.devices):,}: {group.reason}"


def _wrapped(group: Ineligible, names: int, width: int, most: int) -> list[str]:
    """Format a reason in at most that many lines: it is cut rather than the names of its devices."""
    devices = f": {listed(group.devices, names)}"
    lines = wrap(_reason(group) + devices, width - len("  "))
    if len(lines) > most:
        devices = shorten(devices, width // 2)
        lines = wrap(_reason(group), width - len("  ") - len(devices), most)
        lines[-1] += devices
    return [f"  {line}" for line in lines]


def absence_lines(run: Run, width: int | None = None) -> list[str]:
    """Name the classes of which no eligible device has samples, if there are any."""
    if not run.absent_classes:
        return []
    text = "no eligible device has samples of: "
    if width is None:
        return [text + ", ".join(run.absent_classes)]
    return wrap(text + listed(run.absent_classes, LONG[1]), width, 3)
