"""Gates and conditions for multi-threaded tests, independent of the machine's speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from moonfed.serving.models.inference_request import Array
from moonfed.serving.models.onnx_session import OnnxSession

FOR_EVER = 120.0  # seconds: a test that waits for that long has failed


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + FOR_EVER
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.001)


@contextmanager
def pool(size: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(size) as threads:
        yield threads


Answer = TypeVar("Answer")


def result(future: Future[Answer]) -> Answer:
    return future.result(timeout=FOR_EVER)


class SessionGate:
    """A gate that blocks the runs of real sessions until it is opened, and records their batch sizes."""

    def __init__(self, sessions: Sequence[OnnxSession]) -> None:
        self._opened = threading.Event()
        self.batches: list[int] = []
        for session in dict.fromkeys(sessions):
            session.run = self._gated(session.run)

    def _gated(
        self, run: Callable[[Sequence[str], Mapping[str, Array]], list[Array]]
    ) -> Callable[[Sequence[str], Mapping[str, Array]], list[Array]]:
        def gated(names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
            self.batches.append(len(next(iter(feeds.values()))))
            assert self._opened.wait(FOR_EVER)
            return run(names, feeds)

        return gated

    def open(self) -> None:
        self._opened.set()
