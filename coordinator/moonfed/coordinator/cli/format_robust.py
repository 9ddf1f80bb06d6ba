"""A run's defence and what it did, for people's eyes and as JSON for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moonfed.v1 import control_pb2


def defence_document(defence: control_pb2.Defence) -> dict[str, Any]:
    """A defence as JSON values; what is not chosen is 0."""
    return {
        "weight_cap": defence.weight_cap,
        "clip_norm": defence.clip_norm,
        "clip_factor": defence.clip_factor,
        "reducer": defence.reducer,
        "byzantine": defence.byzantine,
    }


def defence_line(defence: control_pb2.Defence) -> str:
    """A defence in one line."""
    told = [f"weight cap {100 * defence.weight_cap:g}%"] if defence.weight_cap else []
    told += [f"clip norm {defence.clip_norm:g}"] if defence.clip_norm else []
    told += [f"clip factor {defence.clip_factor:g}"] if defence.clip_factor else []
    against = f" against {defence.byzantine} of a round's devices" if defence.byzantine else ""
    return f"defence: {', '.join([*told, f'reducer {defence.reducer}{against}'])}"


def offences_document(round_: control_pb2.Round) -> list[dict[str, str]]:
    """A round's offences as JSON values."""
    return [{"device": offence.device, "what": offence.what} for offence in round_.offences]


def offence_lines(rounds: Sequence[control_pb2.Round]) -> list[str]:
    """Rounds' offences, a line for each."""
    return [f"round {round_.round}, {told.device}: {told.what}" for round_ in rounds for told in round_.offences]
