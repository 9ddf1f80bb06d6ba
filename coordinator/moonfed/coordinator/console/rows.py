"""Rows of the console's tables: documents with numbers in place of names, which a fleet has by the thousands."""

from __future__ import annotations

from typing import Any

from moonfed.control.document import document
from moonfed.control.evaluations import Evaluation
from moonfed.control.runs import Round, RoundOutcomes, Run

WORST = 5  # devices


def run_row(run: Run) -> dict[str, Any]:
    """Return a run with the numbers of its open round."""
    shown: dict[str, Any] = document(run)
    names = ("run", "status", "method", "round", "created", "waiting", "reason", "eligible")
    current = run.open_round
    numbers = {
        "rounds": run.rounds,
        "reported": len(current.reported) if current else 0,
        "target": current.target if current else 0,
    }
    return {name: shown[name] for name in names} | numbers


def round_row(round_: Round) -> dict[str, Any]:
    """Return a round with the numbers of its devices."""
    shown: dict[str, Any] = document(round_)
    return shown | {name: len(shown[name]) for name in ("counted", "missing", "incidents")}


def outcomes_row(outcomes: RoundOutcomes) -> dict[str, Any]:
    """Return an attempt with the names of its devices by outcome."""
    by_outcome: dict[str, list[str]] = {}
    for device, outcome in outcomes.outcomes.items():
        by_outcome.setdefault(outcome, []).append(device)
    shown: dict[str, Any] = document(outcomes)
    return shown | {"outcomes": by_outcome}


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation; of one on devices, the numbers of devices, and the worst scores."""
    shown: dict[str, Any] = document(evaluation)
    if found := evaluation.on_devices:
        skipped = [{"reason": group.reason, "devices": len(group.devices)} for group in found.skipped]
        shown["on_devices"] |= {
            "scores": len(found.scores),
            "worst_scores": document(found.worst(WORST)),
            "skipped": skipped,
            "waiting": len(found.waiting),
        }
    return shown
