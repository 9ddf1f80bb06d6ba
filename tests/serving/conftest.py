from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moonfed.serving.grpc import receiving, sending
from moonfed.serving.grpc.repeated_check import RepeatedCheck
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from tests.support.clock import Clock
from tests.support.model_repositories import linear, serve, write_model


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[ModelManager]:
    """One loaded model, `linear`, under explicit control."""
    write_model(tmp_path, "linear", 1, linear())
    models = serve(tmp_path, explicit=True)
    models.load("linear")
    yield models
    models.close()


@pytest.fixture
def one_call() -> Iterator[ElasticThreadPool]:
    """A pool that takes one call at once."""
    pool = ElasticThreadPool(threads=1, limit=1)
    yield pool
    pool.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for the limits on gRPC calls; the checks are the test's, not a thread's."""
    clock = Clock(1000.0)
    for module in (receiving, sending):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(RepeatedCheck, "_repeat", lambda _: None)
    return clock
