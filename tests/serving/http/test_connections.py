"""Limits on HTTP connections: the choice of the one to close."""

from __future__ import annotations

from moonfed.serving.http.connections import Connections
from moonfed.serving.requests.limits import RequestLimits


def connections(*, limit: int = 3, pending_bytes: int = 100, max_body_bytes: int = 80) -> Connections[str]:
    return Connections(RequestLimits(pending_bytes=pending_bytes), limit=limit, max_body_bytes=max_body_bytes)


def opened(*names: str, **limits: int) -> Connections[str]:
    found = connections(**limits)
    for name in names:
        assert found.admit(name) is None
    return found


def test_the_connection_that_has_waited_longest_gives_way_to_a_new_one() -> None:
    found = opened("a", "b", "c")
    assert [found.admit("d"), found.admit("e")] == ["a", "b"]


def test_a_connection_whose_request_is_answered_does_not_give_way() -> None:
    found = opened("a", "b", "c")
    found.set_waiting("a", False)
    assert found.admit("d") == "b"
    found.set_waiting("c", False)
    found.set_waiting("d", False)
    assert found.admit("e") == "e", "all others have a request in progress"
    assert found.admit("f") == "f"


def test_a_connection_that_waits_again_is_the_last_to_give_way() -> None:
    found = opened("a", "b", "c")
    found.set_waiting("a", False)
    found.set_waiting("a", True)
    assert [found.admit(name) for name in ("d", "e", "f")] == ["b", "c", "a"]


def test_a_closed_connection_leaves_its_place_and_is_not_waited_for() -> None:
    found = opened("a", "b", "c")
    found.remove("a")
    found.set_waiting("a", True)
    assert found.admit("d") is None
    assert found.admit("e") == "b"
    found.remove("unknown")


def begun(*names: str, **limits: int) -> Connections[str]:
    """Connections with a request each, whose body is expected."""
    found = opened(*names, **limits)
    for name in names:
        found.begin_body(name)
    return found


def test_the_largest_unfinished_body_gives_way() -> None:
    found = begun("a", "b", "c")
    assert found.receive("a", 40) is None
    assert found.receive("b", 50) is None
    assert found.receive("c", 10) is None
    assert found.receive("c", 1) == "b"
    assert found.receive("a", 40) is None, "b's bytes are free"


def test_a_request_that_is_being_answered_is_not_the_one_to_reject() -> None:
    found = begun("a", "b")
    found.receive("a", 80)
    found.set_waiting("a", False)  # its body is complete
    assert found.receive("b", 30) == "b"


def test_answered_requests_hold_no_bytes() -> None:
    found = begun("b")
    for _ in range(5):
        found.begin_body("a")
        assert found.receive("a", 60) is None
        found.answered("a")
    assert found.receive("a", 1 << 20) is None, "the rest of a request that was answered early"
    assert found.receive("b", 80) is None


def test_bytes_beyond_the_largest_body_do_not_count_since_they_are_dropped() -> None:
    found = begun("a", "b")
    for _ in range(10):
        assert found.receive("a", 60) is None
    assert found.receive("b", 20) is None
    assert found.receive("b", 1) == "a"


def test_every_pipelined_body_counts() -> None:
    found = begun("a", "b")
    found.receive("a", 60)
    found.begin_body("a")
    assert found.receive("a", 40) is None
    assert found.receive("b", 1) == "a"
    assert found.receive("b", 79) is None


def test_a_complete_body_counts_until_the_application_has_finished_even_if_its_client_is_gone() -> None:
    found = opened("a", "b")
    body = found.begin_body("a")
    found.receive("a", 60)
    body.complete = True
    found.begin_body("a")  # pipelined, and never begun
    found.receive("a", 30)
    found.remove("a")
    found.begin_body("b")
    assert found.receive("b", 40) is None
    assert found.receive("b", 1) == "b"
    found.finish(body)
    found.finish(body)
    found.admit("c")
    found.begin_body("c")
    assert found.receive("c", 80) is None
    found.admit("d")
    found.begin_body("d")
    assert found.receive("d", 20) is None
    assert found.receive("d", 1) == "c", "the bytes were subtracted once"
