"""The coordinator's real program with short leases, so that tests need not wait for long ones to run out."""

from __future__ import annotations

LEASE_SECONDS = 4.0


def main() -> None:
    from coordinator import keeping
    from coordinator.cli import main as run
    from coordinator.replicas import replica

    replica.LEASE_SECONDS = LEASE_SECONDS
    keeping.TROUBLE_SECONDS = 0.1
    run()


if __name__ == "__main__":
    main()
