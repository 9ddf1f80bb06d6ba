"""The asynchronous client's connection."""

from __future__ import annotations

from tests.client.interruptions import Interruptions


class TestCaller(Interruptions):
    kind = "asynchronous"
