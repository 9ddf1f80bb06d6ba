"""Errors in the log, and messages for a coordinator that is started with wrong settings."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from moonfed.coordinator.server import ServeSettings, serve
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.error_log import SILENT_SECONDS, ErrorLog, log_error
from moonfed.errors import InvalidInput, ResourceExhausted, Unavailable
from moonfed.observability.flood_log import LINES
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask
from tests.support.refusals import refused

AWAY = sql.exc.OperationalError("SELECT", (), Exception("connection refused"), connection_invalidated=True)
FULL = OSError(errno.ENOSPC, "no space left on device")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def begun(records: list[logging.LogRecord]) -> list[str]:
    """Return what the lines say before the reason."""
    return [record.getMessage().partition(": ")[0] for record in records]


def test_repeated_failures_of_a_fleet_are_logged_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    now = [50.0]
    troubles = ErrorLog(clock=lambda: now[0])
    for device in range(100):
        troubles.failed(f"cam-{device}", AWAY)
    assert begun(caplog.records) == ["rejecting calls for now, for example from cam-0"]
    now[0] += SILENT_SECONDS
    troubles.failed("cam-7", FULL)
    troubles.failed("cam-8", caused(Unavailable("the object store is away"), OSError("refused")))
    assert begun(caplog.records[1:]) == ["rejecting calls for now, for example from cam-7"]
    assert not any(record.exc_info for record in caplog.records)


def test_an_unavailable_object_store_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ErrorLog().failed("cam-1", caused(Unavailable("the object store s3://a cannot be used"), OSError("refused")))
    assert "cam-1: the object store" in caplog.text


def test_a_callers_own_errors_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    for error in (ResourceExhausted("its quota"), InvalidInput("a tensor"), Unavailable("the coordinator is stopping")):
        ErrorLog().failed("cam-1", error)
    assert caplog.records == []


def test_internal_errors_that_a_caller_can_repeat_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    troubles = ErrorLog()
    for _ in range(100):
        troubles.failed("cam-1", ValueError("a mistake of ours"))
    assert len(caplog.records) == LINES


def test_only_internal_errors_have_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_error(logging.getLogger(), "run 'r' cannot go on", FULL)
    log_error(logging.getLogger(), "run 'r' cannot go on", ZeroDivisionError("by us"))
    ErrorLog().failed("cam-1", ZeroDivisionError("by us"))
    assert begun(caplog.records) == ["run 'r' cannot go on", "run 'r' cannot go on", "a call of cam-1 failed"]
    assert [bool(record.exc_info) for record in caplog.records] == [False, True, True]


def test_an_unavailable_database_is_logged_once_and_reported_to_the_caller(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> None:
        raise AWAY

    with monkeypatch.context() as broken:
        broken.setattr(Store, "runs", away)
        for _ in range(3):
            with pytest.raises(Unavailable, match="database cannot be reached"):
                ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest())
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "database cannot be reached" in lines[0].getMessage()
    assert not lines[0].exc_info


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"names": ("a b",)}, ("name", "a b")),
        ({"names": ("fleet.example.org", "")}, ("name", "")),
        ({"names": ("https://fleet",)}, ("name", "https://fleet")),
        ({"names": ("fleet:7443",)}, ("name", "fleet:7443")),
        ({"fleet_port": 7500, "enrolment_port": 7500}, ("enrolment_port", 7500)),
    ],
)
def test_an_address_that_devices_cannot_reach_is_rejected_at_the_start(
    fields: dict[str, Any], named: tuple[str, object]
) -> None:
    with refused(InvalidInput, *named):
        ServeSettings(state=Path("state"), **fields)


@pytest.mark.parametrize("name", ["fleet.example.org", "edge-1", "192.0.2.7", "::1", "2001:db8::7", "host_1"])
def test_names_and_addresses_are_names(name: str) -> None:
    assert ServeSettings(state=Path("state"), names=(name,)).public_name == name


def test_a_file_cannot_be_the_state_directory(tmp_path: Path) -> None:
    file = tmp_path / "join-token"
    file.touch()
    with refused(InvalidInput, "state"):
        serve(ServeSettings(state=file), lambda _: None)


@pytest.mark.parametrize("url", ["s3://", "s3:///", "/var/lib/blobs", "fleet"])
def test_a_url_without_a_bucket_is_rejected(url: str) -> None:
    with refused(InvalidInput, "blobs"):
        ObjectClient(url)


def test_credentials_in_a_url_are_rejected_and_not_repeated() -> None:
    with refused(InvalidInput, "credentials") as rejected:
        ObjectClient("s3://key:secret@fleet/moonfed")
    assert "secret" not in str(rejected.value)
