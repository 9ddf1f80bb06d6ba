from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from moonfed.v1 import fleet_pb2_grpc
from tests.support.tls_fleet import Authority, Fleet, Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    authority, fleet = Authority.make(), Fleet()  # type: ignore[abstract] # grpc leaves the rest unimplemented
    server = grpc.server(futures.ThreadPoolExecutor(4))
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    credentials = grpc.ssl_server_credentials([authority.issue("server", "server")], authority.pem, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield Served(f"127.0.0.1:{port}", authority, fleet, tmp_path)
    server.stop(None).wait()
