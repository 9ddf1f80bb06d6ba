from __future__ import annotations

from tests.coordinator.conftest import postgresql_server, s3_server

__all__ = ["postgresql_server", "s3_server"]
