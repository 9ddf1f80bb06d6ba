"""gRPC imported for the agent: what is left out at first can be imported later, and works."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from moonfed.edge_client.agent.grpc_import import import_grpc
import_grpc()
import grpc
print("ssl" in sys.modules, "grpc.aio" in sys.modules, hasattr(grpc, "aio"))
import ssl, grpc.aio
import_grpc()
print(ssl.create_default_context().check_hostname, grpc.aio.Metadata(("key", "value"))["key"])
"""


def test_ssl_and_grpc_aio_are_imported_when_they_are_needed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False False False", "True value"]
