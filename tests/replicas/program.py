"""The coordinator's real program with short leases, so that tests need not wait long for them to expire."""

from __future__ import annotations

LEASE_SECONDS = 2.5


def main() -> None:
    from moonfed.coordinator.cli.program import main as run
    from moonfed.coordinator.replicas import monitor
    from moonfed.coordinator.runs import persistence

    monitor.LEASE_SECONDS = LEASE_SECONDS
    persistence.RETRY_SECONDS = 0.1
    run()


if __name__ == "__main__":
    main()
