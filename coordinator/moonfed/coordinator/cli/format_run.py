"""Formatting of one run: its settings, devices, rounds and incidents, within a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from moonfed.control.evaluations import Evaluation
from moonfed.control.runs import Round, Run
from moonfed.coordinator.cli.format import duration, metric, snapshot_line
from moonfed.coordinator.cli.format_eligibility import absence_lines, eligibility_lines
from moonfed.coordinator.cli.format_evaluations import evaluation_lines
from moonfed.coordinator.cli.format_privacy import privacy_lines
from moonfed.coordinator.cli.format_robust import clipped_lines, incident_lines
from moonfed.coordinator.cli.layout import LINES, listed, shorten, table, wrap
from moonfed.formatting import count

LOSSES = ("loss", "train_loss", "holdout_loss")
OUTCOME_COLUMNS = 13  # at least, of the column that names what happened to a round
FEWEST_ROUNDS, INCIDENTS, SLOWEST = 5, 3, 5  # lines or names that are shown
ROUNDS_READ = LINES  # more never fit


def run_lines(
    run: Run,
    rule: Mapping[str, Any] | None,
    rounds: Sequence[Round],
    width: int | None = None,
    evaluations: Sequence[Evaluation] = (),
) -> list[str]:
    """Format a run with its server rule, its rounds and the evaluations of its models.

    With a `width`, lines have at most that many columns, and only the newest rounds and the first names are shown, so
    that the lines are at most `LINES`.
    """
    head = [*_head(run, rule, width), *eligibility_lines(run, width), *absence_lines(run, width)]
    head += clipped_lines(run, width)
    tail = [*_abandonment(rounds, width), *_incidents(rounds, width), *evaluation_lines(evaluations, width)]
    tail += _open_round_lines(run, width)
    most = max(FEWEST_ROUNDS, LINES - len(head) - len(tail) - 2) if width else len(rounds) + 1
    return [*head, *_rounds(run, rounds, most, width, _ranked(run, evaluations)), *tail]


def _head(run: Run, rule: Mapping[str, Any] | None, width: int | None) -> list[str]:
    """Format the run's state, and the settings that differ from the defaults."""
    sentences = [(snapshot_line(run), 3)]
    if changed := run.settings.phrases():
        sentences.append((f"settings: {', '.join(changed)}", 5))
    if run.privacy:
        sentences += [(line, 3) for line in privacy_lines(run.privacy)]
    if rule:
        settings = ", ".join(f"{name} {value}" for name, value in rule.items() if name != "name")
        sentences.append((f"server rule {rule['name']}: {settings}", 2))
    return [line for text, most in sentences for line in (wrap(text, width, most) if width else [text])]


def _ranked(run: Run, evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the most important metrics, the first of them first."""
    first, scored = run.metric.name, {name for found in evaluations if found.score for name in found.score.metrics}
    return [first, f"holdout_{first}", *sorted(scored - {first, *LOSSES}), *LOSSES]


def _rounds(run: Run, rounds: Sequence[Round], most: int, width: int | None, ranked: Sequence[str]) -> list[str]:
    """Format a table of the newest rounds, in at most `most` rows; the initial model's metrics precede the first."""
    found = {name for round_ in rounds for name in round_.metrics} | set(run.initial_metrics)
    names, columns = [*(name for name in ranked if name in found), *sorted(found.difference(ranked))], _columns(rounds)
    if width is not None:
        names = _fitting(run, names, width - _width(columns, rounds))
    initial = run.initial_metrics if not rounds or rounds[0].round == 1 else {}
    if not (rounds or initial):
        return []
    rows = [
        [*(cell(round_) for cell in columns.values()), *_cells(round_.metrics, names), _outcome(round_, width)]
        for round_ in rounds
    ]
    if initial:
        rows.insert(0, ["0", *[""] * (len(columns) - 1), *_cells(initial, names), "start"])
    heads = [*columns, *names, "outcome"]
    return ["", *table([_headed(run, head) for head in heads], rows[-most:], width)]


def _columns(rounds: Sequence[Round]) -> dict[str, Callable[[Round], str]]:
    """Return the columns before the metrics; attempts and lost personal parts only where there are some."""
    retried, lost = any(round_.attempt > 1 for round_ in rounds), any(round_.personal_lost for round_ in rounds)
    return {
        "round": lambda round_: str(round_.round),
        **({"attempt": lambda round_: str(round_.attempt)} if retried else {}),
        "updates": _updates,
        "seconds": lambda round_: f"{round_.seconds:.1f}",
        **({"personal_lost": lambda round_: f"{round_.personal_lost:,}"} if lost else {}),
    }


def _width(columns: Mapping[str, Callable[[Round], str]], rounds: Sequence[Round]) -> int:
    return sum(max(len(head), *(len(cell(round_)) for round_ in rounds), 0) + 2 for head, cell in columns.items())


def _headed(run: Run, name: str) -> str:
    """Return a metric's name with its unit."""
    unit = run.metric.unit_of(name)
    return f"{name} ({unit})" if unit else name


def _fitting(run: Run, known: Iterable[str], width: int) -> list[str]:
    """Return the first metrics, as many as fit between the other columns and the outcome."""
    names, left = [], width - OUTCOME_COLUMNS
    for name in known:
        needed = max(len(_headed(run, name)), 6) + 2
        if needed <= left:
            left -= needed
            names.append(name)
    return names


def _updates(round_: Round) -> str:
    return f"{round_.updates} of {len(round_.counted) + len(round_.missing)}"


def _outcome(round_: Round, width: int | None) -> str:
    """Return the outcome: for a committed round with the missing devices, for an abandoned one with the reason."""
    reason = f": {round_.reason}" if round_.reason else ""
    missing = f", {len(round_.missing):,} missing: {_names(round_.missing, width)}" if round_.missing else ""
    return round_.status + (reason or missing)


def _abandonment(rounds: Sequence[Round], width: int | None) -> list[str]:
    """Give the whole reason of the newest round if it was abandoned, which the table has to cut."""
    if not (width and rounds and rounds[-1].status == "abandoned"):
        return []
    last = rounds[-1]
    text = f"round {last.round}, attempt {last.attempt} was abandoned: {last.reason}"
    return ["", *wrap(text, width, 3)]


def _incidents(rounds: Sequence[Round], width: int | None) -> list[str]:
    lines = incident_lines(rounds)
    if width and len(lines) > INCIDENTS:
        lines = [f"the last {INCIDENTS} of {len(lines):,} incidents:", *lines[-INCIDENTS:]]
    return ["", *_cut(lines, width)] if lines else []


def _open_round_lines(run: Run, width: int | None) -> list[str]:
    """Format the open round, with the devices that did not deliver and the slowest of the others."""
    current = run.open_round
    if current is None:
        return []
    groups = {
        "rejected": current.rejected,
        "declined": current.declined,
        "lost": current.lost,
        "left": current.left,
        "joined": current.replacements,
    }
    numbers = "".join(f", {len(names):,} {what}" for what, names in groups.items() if names)
    lines = [
        f"round {current.round}, attempt {current.attempt} opened {duration(current.seconds)} ago: "
        f"{len(current.reported):,} of {count(current.target, 'update')}{numbers}"
    ]
    lines += [f"  {what}: {_names(names, width)}" for what, names in groups.items() if names]
    if current.progress:
        slowest = slowest_devices(current.progress)
        lines += [f"  slowest: {slowest}"]
    return ["", *_cut(lines, width)]


def slowest_devices(progress: Mapping[str, float]) -> str:
    """Return the devices that have reported the least of their local training."""
    slowest = sorted(progress.items(), key=lambda item: (item[1], item[0]))[:SLOWEST]
    return ", ".join(f"{device} {100 * fraction:.0f}%" for device, fraction in slowest)


def _names(names: Sequence[str], width: int | None) -> str:
    return listed(names, 3) if width else ", ".join(names)


def _cells(values: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [metric(name, values[name]) if name in values else "" for name in names]


def _cut(lines: Sequence[str], width: int | None) -> list[str]:
    return [shorten(line, width) for line in lines] if width else list(lines)
