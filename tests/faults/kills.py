"""Kills of a coordinator at random moments of one run, spread over its rounds at any speed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from moonfed.fleet.assignment import Assignment
from tests.faults.fleet import Coordinators, LightDevice, Pace, until

RUN = "killed"
WHILE_IT_STARTS = 0.2  # of all kills


def kills(few: int) -> int:
    """Return the number of kills: a few, or as many as `make soak` asks for."""
    return int(os.environ.get("MOONFED_KILLS", few))


@dataclass
class Reaper(Pace):
    """Kills the coordinator a number of times in a run; devices hold back the last round until then."""

    coordinators: Coordinators
    kills: int
    rounds: int
    allowed: int = 1  # the newest round that devices train for

    def may_train(self, device: str, assignment: Assignment) -> bool:
        """Return True for as many rounds as there were kills."""
        return assignment.id.run != RUN or assignment.id.round <= self.allowed

    def reap(self, devices: Sequence[LightDevice]) -> None:
        """Perform all kills; afterwards no coordinator serves, and the devices are no longer held back."""
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        for kill in range(1, self.kills + 1):
            due = (self.rounds - 1) * kill / self.kills
            self.allowed = min(int(due) + 1, self.rounds - 1)
            self._run_until_killed(devices, chance, due)
        self.allowed = self.rounds

    def _run_until_killed(self, devices: Sequence[LightDevice], chance: random.Random, due: float) -> None:
        """Kill at a random moment of a start or of a round, early once that many rounds have begun."""
        if self.coordinators.process is None:
            process = self.coordinators.launch()
            if chance.random() < WHILE_IT_STARTS:
                time.sleep(chance.uniform(0.0, 0.6))
                self.coordinators.kill()
                return
            assert process.stdout
            process.stdout.readline()
        until(lambda: self.coordinators.drives(RUN))
        end = time.monotonic() + chance.uniform(0.0, 1.0)
        while time.monotonic() < end and _begun(devices) < due:
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.05))  # anywhere within what follows upon a receipt
        self.coordinators.kill()


def _begun(devices: Sequence[LightDevice]) -> int:
    """The newest round that has an update."""
    return max((id_.round for device in devices for id_ in list(device.receipts) if id_.run == RUN), default=0)
