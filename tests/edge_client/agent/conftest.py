from __future__ import annotations

from collections.abc import Iterator

import pytest

from moonfed.edge_client.agent.inbox import Inbox
from moonfed.fleet.assignment import Assignment
from moonfed.fleet.messages import read_assignment
from moonfed.transport.join_token import JoinToken
from tests.edge_client.conftest import Bundle
from tests.support.device_coordinator import Coordinator
from tests.support.signatures import CHAIN


@pytest.fixture
def token(coordinator: Coordinator) -> Iterator[JoinToken]:
    """A join token of the coordinator, which enrols devices."""
    server, port = coordinator.serve_enrolment()
    yield JoinToken(address=f"127.0.0.1:{port}", ca=coordinator.authority.pem, secret="open sesame", trust=CHAIN)
    server.stop(None).wait()


@pytest.fixture
def assignment(bundle: Bundle) -> Assignment:
    return read_assignment(bundle.assignment())


@pytest.fixture
def inbox(assignment: Assignment) -> Inbox:
    """An inbox whose current task is the assignment."""
    inbox = Inbox()
    inbox.put(assignment)
    inbox.next_task(0)
    return inbox
