from __future__ import annotations

import pytest

from tests.compatibility import installed_release
from tests.compatibility.installed_release import Release
from tests.coordinator.conftest import postgresql_server, s3_server
from tests.federation.conftest import federation, make_bundle, parts

__all__ = ["federation", "make_bundle", "parts", "postgresql_server", "s3_server"]


@pytest.fixture(scope="session")
def last() -> Release:
    """The last release."""
    if reason := installed_release.missing():
        pytest.skip(reason)
    return installed_release.last_release()
