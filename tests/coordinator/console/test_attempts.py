"""Failed logins are limited by account and address, by address, and of all addresses together."""

from __future__ import annotations

import pytest

from moonfed.coordinator.console.attempts import MOST_KEYS, OF_ADDRESS, OF_ALL, OF_ONE, WINDOW, LoginAttempts
from tests.support.clock import Clock


def failed(attempts: LoginAttempts, times: int, address: str, account: str = "ann") -> int:
    """Fail as often as permitted; return how often that was."""
    for count in range(times):
        if attempts.wait(address, account):
            return count
        attempts.begin(address, account)
    return times


def test_an_address_waits_after_a_few_failures_with_one_account_and_no_other_does() -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    assert failed(attempts, 100, "10.0.0.1") == OF_ONE
    assert attempts.wait("10.0.0.1", "ann") == WINDOW
    assert attempts.wait("10.0.0.1", "ben") == attempts.wait("10.0.0.2", "ann") == 0
    clock.now += WINDOW
    assert failed(attempts, 100, "10.0.0.1") == OF_ONE


def test_an_address_waits_after_more_failures_with_many_accounts() -> None:
    attempts = LoginAttempts(Clock())
    assert sum(failed(attempts, OF_ONE - 1, "10.0.0.1", f"name {number}") for number in range(100)) == OF_ADDRESS
    assert attempts.wait("10.0.0.2", "ann") == 0


def test_a_success_forgets_the_failures_with_its_account() -> None:
    attempts = LoginAttempts(Clock())
    for _ in range(3):
        assert failed(attempts, OF_ONE - 1, "10.0.0.1") == OF_ONE - 1
        attempts.begin("10.0.0.1", "ann")
        attempts.succeed("10.0.0.1", "ann")
    kept = 3 * (OF_ONE - 1)
    found = sum(failed(attempts, 1, "10.0.0.1", f"name {number}") for number in range(100))
    assert found == OF_ADDRESS - kept, "they count among those with every account"


@pytest.mark.parametrize("accounts", [1, 3, 1000])
@pytest.mark.parametrize("addresses", [13, 200])
def test_many_addresses_lock_nobody_out_and_guess_little(accounts: int, addresses: int) -> None:
    clock = Clock()
    attempts = LoginAttempts(clock)
    guesses = 0
    for turn in range(3 * OF_ADDRESS):
        guesses += sum(failed(attempts, 1, f"10.0.0.{n}", f"name {(turn + n) % accounts}") for n in range(addresses))
    assert guesses <= OF_ALL + addresses
    for number in range(accounts):
        assert attempts.wait("10.1.0.1", f"name {number}") == 0
    attempts.begin("10.1.0.1", "name 0")
    assert attempts.wait("10.1.0.1", "name 0") == WINDOW, "whoever fails then must wait, too"
    clock.now += WINDOW
    assert attempts.wait("10.1.0.1", "name 0") == 0


def test_an_ipv6_network_counts_as_one_address() -> None:
    attempts = LoginAttempts(Clock())
    assert sum(failed(attempts, 1, f"2001:db8::{number:x}") for number in range(100)) == OF_ONE
    assert attempts.wait("2001:db8:0:1::1", "ann") == 0


def test_attempts_that_run_at_the_same_time_count() -> None:
    attempts = LoginAttempts(Clock())
    for _ in range(OF_ONE):
        attempts.begin("10.0.0.1", "ann")  # none has ended
    assert attempts.wait("10.0.0.1", "ann") > 0


def test_memory_is_bounded_in_keys_and_in_their_size() -> None:
    attempts = LoginAttempts(Clock())
    for number in range(2 * MOST_KEYS):
        attempts.begin(f"10.0.{number % 256}.{number // 256}", f"{number}" + "x" * 60_000)
    assert len(attempts._by_key) == MOST_KEYS
    assert max(len(account or "") for _, account in attempts._by_key) <= 100
    assert len(attempts._all) == OF_ALL
