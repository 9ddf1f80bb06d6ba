from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.conftest import new_bucket, postgresql_server, replica, s3_server, two, until

__all__ = ["postgresql_server", "replica", "s3_server", "two", "until"]


@pytest.fixture(scope="module")
def store_url(s3_server: str) -> Iterator[str]:
    """The URL of an empty place in an object store, with credentials for it in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        yield new_bucket(s3_server, patch.setenv)
