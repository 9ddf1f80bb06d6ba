"""Logs are lines of text, or one JSON object per line with run, round, attempt and device as fields."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.errors import InvalidInput, TooLate
from moonfed.fleet.assignment import AttemptId, EligibilityCheck, RunEnded
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.observability import logs

ATTEMPT = AttemptId(run="digits", round=3, attempt=2)
BLOB = BlobRef("0" * 64, 1)
PROGRAM = """
import logging, sys, warnings
from moonfed.observability import logs
logs.configure_logs(*sys.argv[1:])
log = logging.getLogger("moonfed.x")
log.debug("one")
log.info("two")
log.warning("three")
logging.getLogger("library").debug("the password")
warnings.warn("old")
raise ValueError("four")
"""


class Recorder(logging.Handler):
    """Formats what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logs.JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def last(self) -> dict[str, Any]:
        found = json.loads(self.lines[-1])
        assert isinstance(found, dict)
        return found


@pytest.fixture
def log() -> logging.Logger:
    found = logging.Logger("moonfed.test")
    found.addHandler(Recorder())
    return found


@pytest.fixture
def lines(log: logging.Logger) -> Recorder:
    (recorder,) = log.handlers
    assert isinstance(recorder, Recorder)
    return recorder


@pytest.fixture
def named_process() -> Iterator[None]:
    logs.set_process_fields(device="cam-1")
    yield
    logs._process.clear()


def test_a_line_has_time_level_logger_and_message(log: logging.Logger, lines: Recorder) -> None:
    log.warning("%d devices", 3)
    found = lines.last()
    time = datetime.fromisoformat(found.pop("time").replace("Z", "+00:00"))
    assert time.utcoffset() is not None
    assert found == {"level": "warning", "logger": "moonfed.test", "message": "3 devices"}


def test_times_are_rfc_3339() -> None:
    assert logs.rfc3339(1795419360.125) == "2026-11-23T07:36:00.125Z"


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (ATTEMPT, {"run": "digits", "round": 3, "attempt": 2}),
        (EligibilityCheck(run="digits", manifest=BLOB), {"run": "digits"}),
        (RunEnded(run="digits"), {"run": "digits"}),
        (
            EvaluationTask(run="digits", round=4, number=1, manifest=BLOB, model=BLOB, seed=0),
            {"run": "digits", "round": 4},
        ),
        (TooLate("gone"), {"docs": "errors/late-update"}),
        ("digits", {}),
    ],
)
def test_arguments_give_fields(
    argument: object, expected: dict[str, object], log: logging.Logger, lines: Recorder
) -> None:
    log.info("%s: hello", argument)
    found = lines.last()
    assert {name: found[name] for name in (*logs.FIELDS, "docs") if name in found} == expected


@pytest.mark.usefixtures("named_process")
def test_the_lines_own_fields_win_over_the_contexts_and_those_over_the_process(
    log: logging.Logger, lines: Recorder
) -> None:
    with logs.fields(run="faces", round=9):
        log.info("outside")
        assert lines.last().items() >= {"device": "cam-1", "run": "faces", "round": 9}.items()
        log.info("%s", ATTEMPT, extra={"device": "cam-2"})
        assert lines.last().items() >= {"device": "cam-2", "run": "digits", "round": 3, "attempt": 2}.items()
    log.info("after")
    assert "run" not in lines.last()


@pytest.mark.parametrize("name", ['cam\n{"level": "error"}', "cam\x1b[2J", "cam\u2028x", "\ud800", 'a"b\\'])
def test_a_hostile_name_stays_in_its_line(name: str, log: logging.Logger, lines: Recorder) -> None:
    log.warning("%s is lost", name, extra={"device": name})
    assert lines.lines[-1].isprintable()
    assert lines.lines[-1].isascii()
    found = lines.last()
    assert found["level"] == "warning"
    assert found["message"].isprintable()
    assert found["device"].isprintable()


def test_an_exception_is_a_field(log: logging.Logger, lines: Recorder) -> None:
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        log.exception("failed")
    found = lines.last()
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: bad\nvalue")


@pytest.mark.parametrize(("log_format", "log_level"), [("xml", "info"), ("json", "loud")])
def test_unknown_options_are_rejected(log_format: str, log_level: str) -> None:
    with pytest.raises(InvalidInput, match=r"log-(format|level) is '(xml|loud)'; it must be one of"):
        logs.require_log_options(log_format, log_level)


@pytest.mark.parametrize(("level", "messages"), [("debug", ["one", "two", "three"]), ("warning", ["three"])])
def test_a_program_in_json_writes_nothing_else(level: str, messages: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, "json", level], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    *said, warned, ended = found
    assert [line["message"] for line in said] == messages, "and libraries nothing at debug"
    assert warned["logger"] == "py.warnings"
    assert ended["level"] == "critical"
    assert "ValueError: four" in ended["exception"]


def test_a_program_in_text_writes_lines_as_ever() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, "text", "info"], capture_output=True, text=True, check=False)
    two, three = done.stderr.splitlines()[:2]
    assert two.endswith(" INFO two")
    assert three.endswith(" WARNING three")


def test_a_programs_last_words_are_in_its_format(capsys: pytest.CaptureFixture[str], log: logging.Logger) -> None:
    logs.report("moonfed-test", "it is gone", exit_code=3)
    assert capsys.readouterr().err == "moonfed-test: it is gone\n"
    assert logs.last_line("moonfed-test", "stopped") == b"moonfed-test: stopped\n"
    root, recorder = logging.getLogger(), Recorder()
    root.addHandler(recorder)
    try:
        logs.report("moonfed-test", "it is gone", docs="errors/not-found", exit_code=3)
        found = json.loads(logs.last_line("moonfed-test", "stopped"))
    finally:
        root.removeHandler(recorder)
    assert capsys.readouterr().err == ""
    assert recorder.last().items() >= {"level": "error", "logger": "moonfed-test", "exit_code": 3}.items()
    assert found["message"] == "stopped"
