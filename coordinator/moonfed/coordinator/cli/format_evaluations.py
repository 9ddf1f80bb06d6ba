"""Formatting of evaluations of global models, on test sets and on devices."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from moonfed.control.evaluations import DeviceEvaluation, DeviceScore, Evaluation
from moonfed.control.held_out_score import HeldOutScore
from moonfed.coordinator.cli.format import metric
from moonfed.coordinator.cli.layout import listed, wrap
from moonfed.formatting import count, measured

TEST_SETS, CLASSES, GROUPS, NAMES, LOWEST = 3, 3, 4, 4, 5  # shown at most
WRAPPED = 3  # lines at most, of one that is too long for the terminal


def evaluation_lines(evaluations: Sequence[Evaluation], width: int | None = None) -> list[str]:
    """Format the newest evaluated model on each test set, and the newest evaluation on devices.

    With a `width`, lines have at most that many columns, and only the first sets and names are shown.
    """
    newest = {found.test_set: found for found in evaluations if found.score}
    shown = list(newest.values())[: TEST_SETS if width else None]
    lines = [_score_line(found.round, found.score) for found in shown if found.score]
    if len(newest) > len(shown):
        lines.append(f"{count(len(newest) - len(shown), 'more test set')}; --all shows them")
    if on_devices := [found.on_devices for found in evaluations if found.on_devices]:
        lines += device_evaluation_lines(on_devices[-1], whole=width is None)
    if width:
        lines = [part for line in lines for part in wrap(line, width, WRAPPED)]
    return ["", *lines] if lines else []


def _score_line(round_: int, score: HeldOutScore) -> str:
    lowest = sorted((found.recall, found.name) for found in score.by_class() if found.recall is not None)[:CLASSES]
    classes = ", ".join(f"{name} {recall:.2f}" for recall, name in lowest)
    unit_of = score.metric.unit_of
    values = ", ".join(f"{name} {metric(name, value, unit_of(name))}" for name, value in score.described().items())
    return (
        f"test set {score.test_set}, model {round_}: {values}, {count(score.samples, 'sample')}"
        f"{f'; lowest recall {classes}' if classes else ''}"
    )


def _device_score(found: DeviceScore, unit: str) -> str:
    own = "" if found.local_score is None else f", {measured(found.local_score, unit)} with its own"
    return f"{found.device} {measured(found.score, unit)}{own} (on {count(found.samples, 'sample')})"


def device_evaluation_lines(found: DeviceEvaluation, *, whole: bool = False) -> list[str]:
    """Format an evaluation on devices: the distribution, and the devices with the worst scores.

    The devices that are not in it follow, all of them if `whole`.
    """
    state, name, unit = "" if found.closed else ", under way", found.metric.name, found.metric.unit
    result = "no device has scored it"
    if found.median is not None and found.worst_decile is not None:
        result = (
            f"{name} median {measured(found.median, unit)}, worst decile {measured(found.worst_decile, unit)}; worse "
            f"than the device's own model on {found.worse:,} of {found.compared:,}"
        )
    lines = [f"model {found.round} on {count(len(found.scores), 'device')}{state}: {result}"]
    if found.scores:
        worst = ", ".join(_device_score(one, unit) for one in found.worst(LOWEST))
        lines += [f"  {'lowest' if found.metric.maximise else 'highest'} {name}: {worst}"]
    names = sys.maxsize if whole else NAMES
    groups = list(found.skipped)[: None if whole else GROUPS]
    lines += [f"  {len(group.devices):,} skipped: {group.reason}: {listed(group.devices, names)}" for group in groups]
    if found.waiting:
        what = "did not answer" if found.closed else "yet to answer"
        lines += [f"  {len(found.waiting):,} {what}: {listed(found.waiting, names)}"]
    return lines
