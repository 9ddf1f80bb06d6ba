"""Large bodies wait for each other, so that small requests need not wait for them."""

from __future__ import annotations

import asyncio

import pytest

from moonfed.serving.http import pacing
from moonfed.serving.http.pacing import PACED_RATE, UNPACED_BYTES, BodyPacer

PART = PACED_RATE // 1000  # bytes that take a millisecond


def test_parts_of_all_bodies_share_one_rate() -> None:
    pacer = BodyPacer()
    assert [pacer.delay(PART, 5.0) for _ in range(3)] == pytest.approx([0.001, 0.002, 0.003], rel=1e-3)
    assert pacer.delay(PART, 5.0025) == pytest.approx(0.0015, rel=1e-3)
    assert pacer.delay(PART, 9.0) == pytest.approx(0.001, rel=1e-3), "idle time is not saved up"


def test_only_what_exceeds_a_mebibyte_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(pacing, "sleep", sleep)
    pacer = BodyPacer()
    asyncio.run(pacer.wait(PART, UNPACED_BYTES))
    assert not waited
    asyncio.run(pacer.wait(PART, UNPACED_BYTES + 1))
    assert waited == pytest.approx([0.001], rel=1e-3)
