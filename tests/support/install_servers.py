"""Install the servers that tests compare ours with: `python -m tests.support.install_servers`, a part of `make setup`.

Without it, the first test that needs one installs it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import kserve_environment, triton


def main() -> None:
    """Install KServe and Triton, and name what cannot be installed here."""
    for server in (kserve_environment, triton):
        attempt(server.install)


def attempt(install: Callable[[], None]) -> None:
    """Install a server, or say why the tests that need it will be skipped."""
    try:
        install()
    except pytest.skip.Exception as reason:
        print(f"some tests will be skipped: {reason}")


if __name__ == "__main__":
    main()
