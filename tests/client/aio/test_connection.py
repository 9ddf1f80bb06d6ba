"""The asynchronous client's connection."""

from __future__ import annotations

import pytest

from tests.client.interruptions import Interruptions

pytestmark = pytest.mark.slow


class TestConnection(Interruptions):
    kind = "asynchronous"
