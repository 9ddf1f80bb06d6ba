"""Schedules of hyperparameters over rounds, as people write them: steps, half a cosine, and warm-up before either.

Sources: cosine: Loshchilov, Hutter, SGDR (ICLR 2017), equation 5, without restarts; warm-up: Goyal et al. (2017),
section 2.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from moonfed.bundle.manifest import Schedule
from moonfed.errors import InvalidInput

MOST_ROUNDS = 10_000
MOST_PIECES = 200  # of a cosine, which is linear between them
NEGLIGIBLE = 1e-6  # of the value, where steps end
SHAPES = "warmup:ROUNDS, cosine:ROUNDS, step:EVERY:FACTOR, or warmup:ROUNDS and one of them with a comma between them"
COMBINATIONS = (["warmup"], ["cosine"], ["step"], ["warmup", "cosine"], ["warmup", "step"])
_PART = re.compile(r"(warmup|cosine):(\d{1,9})|step:(\d{1,9}):([0-9.eE+-]{1,20})")


def read_schedules(
    texts: Mapping[str, str], hyperparameters: Mapping[str, float], taken: Mapping[str, Schedule]
) -> dict[str, Schedule]:
    """Return the schedules of hyperparameters by name, which begin from the given values.

    `taken`: the method's own. Raises InvalidInput for any other hyperparameter, and for a shape that is not allowed.
    """
    for key, text in texts.items():
        if key not in hyperparameters or key in taken:
            free = ", ".join(sorted(set(hyperparameters) - set(taken)))
            raise InvalidInput(field="schedule", value=f"{key}={text}", allowed=f"KEY=SHAPE with a KEY out of {free}")
    return {key: read_schedule(key, text, hyperparameters[key]) for key, text in texts.items()}


def read_schedule(key: str, text: str, value: float) -> Schedule:
    """Return a schedule that begins from a value, as `(round, value)` between which it is linear."""
    parts = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    shapes = [part[1] or "step" for part in parts if part]
    if len(shapes) < len(parts) or shapes not in COMBINATIONS:
        raise InvalidInput(field=f"schedule of {key}", value=text, allowed=SHAPES)
    points: dict[int, float] = {}
    begin = 0  # rounds of the warm-up
    for part in parts:
        assert part  # noqa: S101 - checked above
        rounds = int(part[2] or part[3])
        least = begin + 1 if part[1] == "cosine" else 1
        if not least <= rounds <= MOST_ROUNDS:
            raise InvalidInput(
                field=f"schedule of {key}",
                value=text,
                rest=f"; its rounds must be from {least} to {MOST_ROUNDS:,}",
            )
        if part[1] == "warmup":
            points |= {1: value / rounds, rounds: value}
            begin = rounds
        elif part[1] == "cosine":
            points |= _cosine(value, begin, rounds)
        else:
            points |= _steps(key, text, value, begin, every=rounds, factor_text=part[4])
    return tuple(sorted(points.items()))


def _cosine(value: float, begin: int, end: int) -> dict[int, float]:
    """Return half a cosine from `value` in the round after `begin`; it would reach 0 in the round after `end`."""
    number = min(end - begin, MOST_PIECES + 1)
    places = [begin + 1 + round(index * (end - begin - 1) / max(number - 1, 1)) for index in range(number)]
    return {at: value * (1 + math.cos(math.pi * (at - begin - 1) / (end - begin))) / 2 for at in places}


def _steps(key: str, text: str, value: float, begin: int, *, every: int, factor_text: str) -> dict[int, float]:
    """Return a value that is multiplied by a factor after each so many rounds."""
    try:
        factor = float(factor_text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1:
        raise InvalidInput(
            field=f"schedule of {key}", value=text, rest="; the factor of its steps must be above 0, below 1"
        )
    points = {begin + 1: value}
    level, at = 1.0, begin + every
    while (level == 1 or level * factor >= NEGLIGIBLE) and at <= MOST_ROUNDS:
        points |= {at: value * level, at + 1: value * level * factor}
        level, at = level * factor, at + every
    return points
