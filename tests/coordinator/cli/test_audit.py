"""The command that prints the audit trail."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from moonfed.control.operators import AuditRecord
from moonfed.coordinator.cli.audit import parse_time, record_lines
from moonfed.errors import InvalidInput, NotFound
from moonfed.formatting import moment
from moonfed.v1 import control_pb2
from tests.support.coordinator import ask
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, Programs
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

WIDTH = 80


def record(**fields: Any) -> AuditRecord:
    empty: dict[str, Any] = dict.fromkeys(("name", "role", "serial", "address", "call", "details"), "")
    return AuditRecord(**{**empty, "time": moment(1_700_000_000.25), "outcome": "done", **fields})


RECORD = record(
    name="ann", role="engineer", serial="1f", address="10.0.0.7:51234", call="StopRun", details="stop run 'digits'"
)


def test_a_record_is_a_line_for_the_caller_and_one_for_the_call() -> None:
    assert record_lines(RECORD, WIDTH) == [
        "2023-11-14 22:13:20 UTC  done     ann (engineer) at 10.0.0.7:51234",
        "  stop run 'digits'",
    ]


@pytest.mark.parametrize(
    ("fields", "caller"),
    [
        ({"name": "cam-1", "role": "device", "address": "[::1]:7", "call": "Enrol"}, "cam-1 (device) at [::1]:7"),
        ({"name": "cam-1", "address": "10.0.0.7:7", "call": "Connect"}, "cam-1 (no certificate) at 10.0.0.7:7"),
        ({"address": "10.0.0.7:7", "call": "Enrol"}, "no certificate at 10.0.0.7:7"),
        ({"role": "coordinator", "call": "CreateOperator"}, "coordinator"),
        ({}, "other callers"),
    ],
)
def test_a_caller_is_named_as_far_as_it_is_known(fields: dict[str, str], caller: str) -> None:
    assert record_lines(record(outcome="denied", **fields), WIDTH)[0] == f"2023-11-14 22:13:20 UTC  denied   {caller}"


def test_omitted_calls_are_counted() -> None:
    omitted = record(call="Enrol", outcome="denied", reason="further such calls in 60 s", count=1200)
    assert record_lines(omitted, WIDTH)[1:] == ["  Enrol: further such calls in 60 s (1,200 calls)"]


def test_a_long_record_is_wrapped_and_complete() -> None:
    name, serial = "n" * 63, "f" * 40
    certificates = ", ".join([serial] * 9)
    long = record(
        name=name,
        role="evaluator",
        address="[2001:db8:1111:2222:3333:4444:5555:6666]:51234",
        outcome="failed",
        details=f"revoke operator {name!r}: certificates {certificates}",
        reason="no such operator",
        count=2,
    )
    for width in (WIDTH, 60, 200):
        lines = record_lines(long, width)
        assert max(map(len, lines)) <= width
        assert sum(not line.startswith("  ") for line in lines) == 1, "only a record's first line is not indented"
        joined = "".join(lines).replace(" ", "")
        for part in (name, "(evaluator)", long.address, certificates, "no such operator", "(2 calls)"):
            assert part.replace(" ", "") in joined


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14", 1_699_920_000.0),
        ("2023-11-14T22:13:20", 1_700_000_000.0),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
    ],
)
def test_a_time_is_in_utc_unless_it_names_a_zone(text: str, seconds: float) -> None:
    assert parse_time("since", text) == seconds


def test_a_wrong_time_is_rejected() -> None:
    with refused(InvalidInput, "since", "yesterday"):
        parse_time("since", "yesterday")


def test_the_trail_is_filtered_and_streamed(programs: Programs) -> None:
    programs.serve()
    programs.command("token", "create", "--uses", "3")
    programs.command("run", "delete", "digits", "--yes", code=3)
    lines = programs.command("audit").splitlines()
    assert re.fullmatch(r"20.* UTC  done     operator \(admin\) at 127\.0\.0\.1:\d+", lines[-4])
    assert lines[-3].startswith("  create a join token for 3 devices, valid for 24 h: ")
    assert "  failed   operator (admin) at " in lines[-2]
    assert lines[-1] == "  delete run 'digits': there is no run 'digits'"
    assert programs.command("audit", "--newest", "1").splitlines() == lines[-2:]
    assert programs.command("audit", "--call", "CreateToken").splitlines() == lines[-4:-2]
    assert programs.command("audit", "--denied") == programs.command("audit", "--since", "2100-01-01") == ""
    assert "since is 'soon'" in programs.command("audit", "--since", "soon", code=2)
    identity = ["--identity", str(programs.state / "operator")]
    words = ["audit", "--json", "--follow", "--call", "CreateToken", *identity]
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as follower:
        assert follower.stdout
        first = json.loads(follower.stdout.readline())
        assert (first["call"], first["outcome"]) == ("CreateToken", "done")
        programs.command("token", "create", "--uses", "4")
        second = json.loads(follower.stdout.readline())
        assert second["details"].startswith("create a join token for 4 devices")
        assert second["number"] > first["number"]
        follower.kill()


def test_the_newest_records_fit_a_terminal(programs: Programs) -> None:
    programs.serve()
    name = "device-" + "x" * 56
    control = programs.operator().control
    for _ in range(21):
        with pytest.raises(NotFound):
            ask(control.RemoveDevice, control_pb2.RemoveDeviceRequest(device=name))
    lines = programs.command("audit").splitlines()
    assert len(lines) == 20 * 4
    assert max(map(len, lines)) <= WIDTH
    assert len(programs.command("audit", "--newest", "21").splitlines()) == 21 * 4
    assert len(programs.command("audit", "--json").splitlines()) > 21
