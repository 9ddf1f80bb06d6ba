"""Failed logins are limited by address, and of all addresses together."""

from __future__ import annotations

from moonfed.coordinator.console.attempts import MOST_ADDRESSES, OF_ALL, OF_ONE, WINDOW, LoginAttempts


def test_an_address_waits_after_a_few_failures_and_no_other_does() -> None:
    now = [0.0]
    attempts = LoginAttempts(lambda: now[0])
    for _ in range(OF_ONE):
        assert attempts.wait("a") == 0
        attempts.fail("a")
        now[0] += 1
    assert attempts.wait("a") == WINDOW - OF_ONE
    assert attempts.wait("b") == 0
    now[0] = WINDOW
    assert attempts.wait("a") == 0
    attempts.fail("a")
    attempts.succeed("a")
    assert attempts.wait("a") == 0


def test_many_addresses_share_a_limit_and_bounded_memory() -> None:
    now = [0.0]
    attempts = LoginAttempts(lambda: now[0])
    for number in range(OF_ALL):
        assert attempts.wait(f"10.0.0.{number}") == 0
        attempts.fail(f"10.0.0.{number}")
    assert attempts.wait("10.1.0.1") == WINDOW
    now[0] = 2 * WINDOW
    for number in range(MOST_ADDRESSES + 5):
        attempts.fail(f"10.2.0.{number}")
    assert len(attempts._by_address) <= MOST_ADDRESSES
