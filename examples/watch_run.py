"""Start a run and watch it: `python examples/watch_run.py BUNDLE [IDENTITY]`, such as `digits.zip`."""

from __future__ import annotations

import sys

from moonfed.client import (
    Coordinator,
    DeviceDeclined,
    Ended,
    Interrupted,
    RoundAbandoned,
    RoundCommitted,
    RoundOpened,
    Run,
    Waiting,
)
from moonfed.errors import MoonfedError


def watch(coordinator: Coordinator, bundle: str) -> Run:
    """Start a run and print its events until it ends."""
    run = coordinator.start(bundle, rounds=3)
    for event in coordinator.watch(run.run):
        match event:
            case Waiting(reason=reason) | Interrupted(reason=reason):
                print(reason)
            case RoundOpened(round=number, cohort=cohort):
                print(f"round {number} of {run.rounds} with {len(cohort)} devices")
            case DeviceDeclined(device=device, reason=reason):
                print(f"  {device} declined: {reason}")
            case RoundCommitted(round=number, counted=counted):
                print(f"round {number}: {len(counted)} updates")
            case RoundAbandoned(round=number, reason=reason):
                print(f"round {number} is abandoned: {reason}")
            case Ended(run=run):
                print(f"{run.run}: {run.status} {run.reason}")
            case _:
                pass
    return run


def main(bundle: str, identity: str | None = None) -> int:
    """Return the exit code: 0 if the run has finished."""
    try:
        with Coordinator(identity) as coordinator:
            run = watch(coordinator, bundle)
            for name, values in coordinator.weights(run.run).items():
                print(f"{name}: {values.shape}, norm {float((values**2).sum()) ** 0.5:.3f}")
    except MoonfedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if run.status == "finished" else 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
