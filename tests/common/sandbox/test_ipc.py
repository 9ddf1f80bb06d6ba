"""A child's answers to its parent's commands; `test_worker_process` has real children and pipes."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any, cast

import pytest

from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.sandbox.ipc import (
    REASON_LENGTH,
    TEXT_LENGTH,
    LogForwarder,
    ParentPipe,
    Stopped,
    die_with,
    serve,
)

Command = tuple[str, dict[str, Any]]


class EndOfCommands(BaseException):
    """Raised instead of waiting for a further command."""


class FakeParent:
    """A parent with a list of commands, which records what it is sent."""

    def __init__(self, *commands: str) -> None:
        self._commands: list[Command] = [(kind, {}) for kind in commands]
        self.sent: list[dict[str, Any]] = []
        self.stop_requested = threading.Event()

    def send(self, kind: str, **fields: object) -> None:
        self.sent.append({"kind": kind, **fields})

    def next_command(self) -> Command:
        if not self._commands:
            raise EndOfCommands
        return self._commands.pop(0)

    def pipe(self) -> ParentPipe:
        return cast(ParentPipe, self)


def answers(failures: dict[str, Exception]) -> list[dict[str, Any]]:
    """Serve a command of each name, of which some fail; return what the parent is sent."""

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if kind in failures:
            raise failures[kind]
        return {"kind": "done", "of": kind}

    parent = FakeParent(*failures, "last")
    with pytest.raises(EndOfCommands):
        serve(parent.pipe(), execute)
    return parent.sent


def test_every_failure_is_answered_and_the_next_command_executed(capsys: pytest.CaptureFixture[str]) -> None:
    found = answers(
        {
            "stopped": Stopped(),
            "rejected": ResourceExhausted("the round needs 9 GB"),
            "failed": ValueError(
                "Traceback of TorchScript (most recent call last):\n  line\nthe plan divides by zero\n"
            ),
            "silent": RuntimeError(),
        }
    )
    assert found == [
        {"kind": "stopped"},
        {"kind": "failed", "error": "ResourceExhausted", "reason": "the round needs 9 GB"},
        {"kind": "failed", "error": "TrainingFailed", "reason": "ValueError: the plan divides by zero"},
        {"kind": "failed", "error": "TrainingFailed", "reason": "RuntimeError: no message"},
        {"kind": "done", "of": "last"},
    ]
    assert "divides by zero" in capsys.readouterr().err  # with its traceback, in this device's own log


def test_reasons_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    ours, users, _ = answers({"ours": InvalidInput("x" * 9000), "user's": ValueError("y" * 9000)})
    assert len(ours["reason"]) == TEXT_LENGTH
    assert len(users["reason"]) == REASON_LENGTH


def test_log_records_are_forwarded_with_their_level_and_cut() -> None:
    parent = FakeParent()
    logger = logging.Logger("child")
    logger.addHandler(LogForwarder(parent.pipe()))
    logger.warning("%d samples", 3)
    logger.error("z" * 9000)
    assert parent.sent[0] == {"kind": "log", "level": logging.WARNING, "text": "3 samples"}
    assert (parent.sent[1]["level"], len(parent.sent[1]["text"])) == (logging.ERROR, TEXT_LENGTH)


def test_a_child_whose_parent_died_before_it_asked_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")  # which has no signal for it
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    die_with(1)
    assert exits == []
    die_with(4321)
    assert exits == [0]
