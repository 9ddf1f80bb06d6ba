from tests.coordinator.conftest import postgresql_server

__all__ = ["postgresql_server"]
