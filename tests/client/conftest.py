"""A coordinator process with three devices that train and evaluate by arithmetic, and both clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

import pytest

from moonfed.bundle.files import Bundle, write_bundle
from moonfed.client import AsyncCoordinator, Coordinator, Ended, Event, Run
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, enrol_all, until
from tests.support.scoring_devices import scoring_devices

ELEMENTS = 12  # of the model


@dataclass(frozen=True)
class Fleet:
    """A coordinator process, and a bundle for its devices."""

    coordinators: Coordinators
    bundle: Bundle
    path: Path

    @property
    def identity(self) -> Path:
        return self.coordinators.state / "operator"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("client")
    bundle = bundle_of(ELEMENTS)
    write_bundle(directory / "bundle", bundle)
    coordinators = Coordinators(directory, arguments=("--name", "localhost"))
    coordinators.serve()
    try:
        enrol_all(coordinators, list(SAMPLES))
        with scoring_devices(coordinators, [f"127.0.0.1:{coordinators.ports[0]}"]):
            until_online(coordinators)
            yield Fleet(coordinators, bundle, directory / "bundle")
    finally:
        coordinators.kill()


def until_online(coordinators: Coordinators) -> None:
    """Wait for all devices."""
    calls = coordinators.operator()
    with calls.channel:
        until(lambda: len(calls.devices(online=True)) == len(SAMPLES))


class Blocking:
    """An asynchronous client as a synchronous one, so that a test covers both."""

    def __init__(self, client: AsyncCoordinator, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*words: object, **options: object) -> Any:
            found = getattr(self._client, name)(*words, **options)
            return self._loop.run_until_complete(found) if isawaitable(found) else self._iterated(found)

        return call

    def _iterated(self, events: AsyncIterator[Event]) -> Iterator[Event]:
        while (event := self._loop.run_until_complete(anext(events, None))) is not None:
            yield event


@pytest.fixture(scope="module", params=["synchronous", "asynchronous"])
def client(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[Coordinator]:
    with opened(fleet.identity, request.param) as found:
        yield found


@contextmanager
def opened(identity: Path, kind: str) -> Iterator[Coordinator]:
    """Open a client of one of the two kinds."""
    if kind == "synchronous":
        with Coordinator(identity) as client:
            yield client
        return
    loop, other = asyncio.new_event_loop(), AsyncCoordinator(identity)
    try:
        yield cast(Coordinator, Blocking(other, loop))
    finally:
        loop.run_until_complete(other.close())
        loop.close()


def finished(client: Coordinator, run: str) -> Run:
    """Watch a run until it ends."""
    *_, last = client.watch(run)
    assert isinstance(last, Ended)
    return last.run
