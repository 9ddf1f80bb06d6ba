from __future__ import annotations

import pytest

from tests.compatibility import installed_release
from tests.compatibility.installed_release import Release
from tests.compatibility.later_release import later_release
from tests.compatibility.programs import Programs
from tests.coordinator.conftest import postgresql_server, s3_server
from tests.federation.conftest import federation, make_bundle, parts

__all__ = ["federation", "make_bundle", "parts", "postgresql_server", "s3_server"]


@pytest.fixture(scope="session")
def last() -> Release:
    """The last release."""
    if reason := installed_release.missing():
        pytest.skip(reason)
    return installed_release.last_release()


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """A later release's programs."""
    return later_release(tmp_path_factory.mktemp("wheels"))
