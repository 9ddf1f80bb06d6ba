"""The parties of an attempt at a round: those that drop out, those that are slow, and those whose updates count.

All of it is drawn from the seed, so a simulation has the same result every time. The coordinator draws and replaces;
this follows its order of the draw, and tells each party what to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.cohort import draw_order, poisson_cohort
from moonfed.coordinator.rounds.sizes import drawn, updates_wanted
from moonfed.fleet.assignment import AttemptId


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The shares of parties that do not do as they should, and the seed that decides which."""

    stragglers: float = 0.0
    dropouts: float = 0.0
    seed: int = 0

    def drops_out(self, attempt: AttemptId, name: str) -> bool:
        """Draw whether a party that is asked to train drops out."""
        if not self.dropouts:
            return False
        return draw(self.seed, attempt.round, name, f"drops out of attempt {attempt.attempt}") < self.dropouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """The parties of an attempt that train, by what becomes of their updates."""

    counted: frozenset[str]  # in time to count
    stragglers: frozenset[str]  # among all that train


def attendance(
    settings: RunSettings,
    cohorts: Draw,
    attempt: AttemptId,
    samples: Mapping[str, int],
    reused: Sequence[str],
    behaviour: Behaviour,
) -> Attendance:
    """Return the parties that train in an attempt, and those that are in time.

    `cohorts`: the run's draw. `samples`: of all parties, which are online. `reused`: the parties whose update of an
    earlier attempt counts. A party that drops out is replaced by the next in the order of the draw. Where more train
    than the round needs, the stragglers come last, and the others in an order drawn for each round. With privacy,
    nobody is replaced, and all count.
    """
    if settings.private:
        cohort = poisson_cohort(settings, cohorts, attempt.round, attempt.attempt, samples)
        training = [name for name in cohort if not behaviour.drops_out(attempt, name)]
        slow = draw_stragglers(training, behaviour.stragglers, behaviour.seed, attempt.round)
        return Attendance(counted=frozenset(training), stragglers=frozenset(slow))
    order = draw_order(settings, cohorts, attempt.round, attempt.attempt, samples, samples)
    waiting = [name for name in order if name not in reused and not behaviour.drops_out(attempt, name)]
    places = drawn(settings, len(samples))
    training = waiting[: max(0, places - len(reused))]
    slow = draw_stragglers((*reused, *training), behaviour.stragglers, behaviour.seed, attempt.round)

    def arrival(name: str) -> tuple[bool, float]:
        return name in slow, draw(behaviour.seed, attempt.round, name, "arrives")

    needed = max(0, updates_wanted(settings, places) - len(reused))
    return Attendance(counted=frozenset(sorted(training, key=arrival)[:needed]), stragglers=frozenset(slow))


def draw_stragglers(names: Sequence[str], share: float, seed: int, round_: int) -> list[str]:
    """Draw a share of the parties, the number rounded; the same for the same seed, round and parties."""
    ranked = sorted(names, key=lambda name: draw(seed, round_, name, "straggles"))
    return ranked[: round(share * len(names))]


def partial_steps(steps: int, seed: int, round_: int, name: str) -> int:
    """Draw a straggler's optimiser steps in a round, uniformly from 1 to all of them."""
    return 1 + int(draw(seed, round_, name, "steps") * steps)


def draw(seed: int, round_: int, name: str, purpose: str) -> float:
    """Draw a number, uniform in [0, 1)."""
    digest = hashlib.sha256(f"{seed}/{round_}/{purpose}/{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) / 2**53
