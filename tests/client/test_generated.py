"""The synchronous client is what the generator makes of the asynchronous one."""

from __future__ import annotations

import pytest

from tools.generate_client import CLIENT, SOURCES, synchronous


@pytest.mark.parametrize("name", SOURCES)
def test_the_synchronous_client_is_up_to_date(name: str) -> None:
    made = synchronous((CLIENT / "aio" / name).read_text())
    assert (CLIENT / "sync" / name).read_text() == made, "run: python -m tools.generate_client"


def test_only_the_channel_is_written_twice() -> None:
    modules = {path.name for path in (CLIENT / "sync").glob("*.py")}
    assert modules - {*SOURCES} == {"__init__.py", "channel.py"}
