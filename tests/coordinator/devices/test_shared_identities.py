"""Copied identities are told from devices that reconnect or restart."""

from __future__ import annotations

import logging

import pytest

from moonfed.coordinator.devices.shared_identities import RECENT_SECONDS, SharedIdentities, describe_shared


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def after(*connections: str, seconds: float = 30.0) -> tuple[str, ...]:
    """Return the addresses after connections, each an instance and the last number of its address: `a1`."""
    clock = Clock()
    identities = SharedIdentities(clock)
    for port, connection in enumerate(connections):
        instance, host = connection[0], connection[1]
        identities.connected("cam-1", instance.strip("-"), f"10.0.0.{host}:{50000 + port}", "serial-" + instance)
        clock.now += seconds
    return identities.addresses("cam-1")


@pytest.mark.parametrize(
    "connections",
    [
        pytest.param("a1 b1 c1 d1 e1 f1 g1 h1", id="restarts"),
        pytest.param("a1 a2 a1 a2 a1 a2 a1", id="two networks"),
        pytest.param("a1 a1 b2 b1 b2 b1 c1 c2", id="restarts and networks"),
        pytest.param("a1 b1 a1 b1 b1 b1 c1", id="a delayed call of the process before a restart"),
        pytest.param("-1 -2 -1 -2 -1 -2", id="an older client"),
    ],
)
def test_one_device_shares_its_identity_with_nobody(connections: str) -> None:
    assert after(*connections.split()) == ()


@pytest.mark.parametrize(
    ("connections", "addresses"),
    [
        pytest.param("a1 b2 a1 b2 a1", ("10.0.0.1", "10.0.0.2"), id="turns"),
        pytest.param("a1 b2 a3 b2 a3", ("10.0.0.2", "10.0.0.3"), id="one moves"),
        pytest.param("a1 b2 a1 c2 a1 d2 a1", ("10.0.0.1", "10.0.0.2"), id="the copy restarts"),
        pytest.param("a1 b2 c3 a1 b2 c3", ("10.0.0.1", "10.0.0.2", "10.0.0.3"), id="three"),
        pytest.param("a1 a1 b1 b1 a1 a1 b1 a1", ("10.0.0.1:50006", "10.0.0.1:50007"), id="behind one address"),
    ],
)
def test_copies_that_take_turns_are_found_with_their_addresses(connections: str, addresses: tuple[str, ...]) -> None:
    assert after(*connections.split()) == addresses
    assert after(*connections.split(), seconds=RECENT_SECONDS) == (), "too long ago to tell"


def test_a_warning_is_repeated_hourly_and_the_remedy_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    identities = SharedIdentities(clock)
    with caplog.at_level(logging.WARNING):
        for turn in range(100):
            identities.connected("cam-1", f"{turn % 2}", f"10.0.0.{turn % 2}:443", f"serial-{turn % 2}")
            clock.now += 60
    assert [record.getMessage() for record in caplog.records] == 2 * [
        describe_shared("cam-1", ("10.0.0.0", "10.0.0.1"))
    ]
    assert "moonfed-coordinator device revoke cam-1" in caplog.text
    identities.forget(devices=["cam-2"], serials=["serial-2"])
    assert identities.addresses("cam-1")
    identities.forget(devices=[], serials=["serial-0"])
    assert identities.addresses("cam-1") == (), "the copy can return no more"
    identities.forget(devices=["cam-1"], serials=[])
    identities.connected("cam-1", "0", "10.0.0.1:443")
    assert identities.addresses("cam-1") == ()
