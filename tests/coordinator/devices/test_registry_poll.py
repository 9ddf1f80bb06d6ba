"""The poll of the registry: every version reaches every subscriber."""

from __future__ import annotations

import asyncio

import pytest

from moonfed.coordinator.devices import registry_poll
from moonfed.coordinator.devices.registry_poll import RegistryPoll
from moonfed.coordinator.storage.registry_view import RegistryView, RegistryViews
from tests.support.device_certificates import registry_view


class Registry(RegistryViews):
    """A registry whose versions a test sets."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.read = 0

    def version(self) -> int:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        self._version = answer
        return answer

    def load(self) -> RegistryView:
        self.read += 1
        return registry_view(version=self._version)


class Subscriber:
    """Records the versions that it gets; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.versions, self._failures = list[int](), failures

    async def __call__(self, view: RegistryView) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError("the disk is away")
        self.versions.append(view.version)


def test_a_version_is_read_and_passed_on_once() -> None:
    registry, one, two = Registry(0, 0, 3, 3), Subscriber(), Subscriber()
    poll = RegistryPoll(registry)
    poll.subscribe(one)
    poll.subscribe(two)

    async def scenario() -> None:
        for _ in range(5):
            await poll.refresh()

    asyncio.run(scenario())
    assert (one.versions, two.versions, registry.read) == ([0, 3], [0, 3], 2)


def test_a_subscriber_that_fails_gets_the_version_again_and_delays_none_before_it() -> None:
    poll, first, failing = RegistryPoll(Registry(1)), Subscriber(), Subscriber(failures=1)
    poll.subscribe(first)
    poll.subscribe(failing)

    async def scenario() -> None:
        with pytest.raises(OSError, match="away"):
            await poll.refresh()
        assert first.versions == [1]
        await poll.refresh()

    asyncio.run(scenario())
    assert failing.versions == [1]


def test_while_the_registry_cannot_be_read_what_is_known_applies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry_poll, "POLL_SECONDS", 0.01)
    away = OSError("the disk is away")
    subscriber = Subscriber()
    poll = RegistryPoll(Registry(1, away, away, away, 2))
    poll.subscribe(subscriber)

    async def scenario() -> None:
        task = asyncio.create_task(poll.run())
        while subscriber.versions != [1, 2]:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
    assert caplog.text.count("read the revoked certificates") == 1
