"""Import of gRPC without the modules that it imports, but the agent does not use.

asyncio's TLS and gRPC's interface for asyncio would take two of the agent's sixty megabytes.
"""

from __future__ import annotations

import sys
from types import ModuleType


def import_grpc() -> None:
    """Import gRPC; ssl and grpc.aio, if not imported yet, can be imported afterwards."""
    if "grpc" in sys.modules:
        return
    absent = {name for name in ("ssl", "grpc.aio") if name not in sys.modules}
    # asyncio does without ssl where it cannot be imported; grpc only binds the name `aio`
    sys.modules.update({name: _PLACEHOLDERS[name] for name in absent})  # type: ignore[misc]  # None: not found
    try:
        import grpc
    finally:
        for name in absent:
            del sys.modules[name]
    if "grpc.aio" in absent:
        del grpc.aio


_PLACEHOLDERS = {"ssl": None, "grpc.aio": ModuleType("grpc.aio")}
