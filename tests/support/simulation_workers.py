"""The worker processes of the virtual fleet that this process has started."""

from __future__ import annotations

import psutil


def fork_servers() -> list[psutil.Process]:
    """Return the fork server, if one has been started."""
    return [
        child for child in psutil.Process().children() if "moonfed.experiments.fleet.fork_server" in child.cmdline()
    ]


def workers() -> list[psutil.Process]:
    """Return what the fork server has forked and nobody has waited for."""
    return [worker for server in fork_servers() for worker in server.children()]
