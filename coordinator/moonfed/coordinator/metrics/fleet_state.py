"""The state of a coordinator's devices and runs, as of one moment of its event loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moonfed.coordinator.app import Coordinator

ROLES = ("driven", "followed", "suspended")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """Numbers of devices and of running runs."""

    online: int = 0  # devices connected to this coordinator
    eligible: int = 0  # those of them that may train a run of this coordinator
    attempt: int = 0  # the highest number of an attempt at a round among the runs driven here; 0: none is driven
    runs: Mapping[str, int] = field(default_factory=dict)  # by ROLES


class FleetStates:
    """Reads the state of one coordinator. Lives on its event loop."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def read(self) -> FleetState:
        """Return the state."""
        runs, local = self._coordinator.runs, self._coordinator.sessions.local().keys()
        running = {name: run for name, run in runs.served.items() if run.state.status == "running"}
        eligible = {device for run in running.values() for device in run.eligible()}
        driven = [run for name, run in running.items() if name in runs.driven]
        return FleetState(
            online=len(local),
            eligible=len(eligible & local),
            attempt=max((run.state.failed_attempts + 1 for run in driven), default=0),
            runs={
                "driven": len(driven),
                "followed": len(running) - len(driven),
                "suspended": len(runs.suspended.names),
            },
        )
