"""The coordinator's real program with leases of another length, mostly short ones: tests wait for their end."""

from __future__ import annotations

import os

LEASE = "MOONFED_TEST_LEASE"
LEASE_SECONDS = float(os.environ.get(LEASE, "2"))


def main() -> None:
    from coordinator import keeping
    from coordinator.cli import main as run
    from coordinator.replicas import replica
    from coordinator.storage import leases

    leases.LEASE_SECONDS = replica.LEASE_SECONDS = LEASE_SECONDS
    keeping.TROUBLE_SECONDS = 0.1
    run()


if __name__ == "__main__":
    main()
