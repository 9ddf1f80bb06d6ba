"""A child that a plan may have taken over: whatever it sends, its parent survives and logs one line."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.sandbox import child_process as module
from moonfed.sandbox.child_process import (
    LINE_BYTES,
    OUTPUT_LINES,
    PENDING,
    TEXT_LENGTH,
    ChildProcess,
    Program,
)
from moonfed.sandbox.messages import encode
from tests.edge_client.conftest import wait_until_gone

NewChild = Callable[..., ChildProcess]
READY = '{"kind": "ready", "value": 7}\\n'


@pytest.fixture
def new_child(tmp_path: Path) -> Iterator[NewChild]:
    made: list[ChildProcess] = []

    def make(body: str, silence: float = 60.0, check: Callable[[], None] | None = None) -> ChildProcess:
        code = f"import os, sys, time\ndef send(text): os.write(1, text.encode())\nsys.stdin.readline()\n{body}"
        command = [sys.executable, "-I", "-c", code]
        program = Program(name="the child", command=command, cwd=tmp_path, env={"A": "b"}, log_output=True, check=check)
        made.append(ChildProcess(program, silence))
        return made[-1]

    yield make
    for child in made:
        child.end()


def test_an_answer_has_the_fields_of_the_expected_kind(new_child: NewChild) -> None:
    seen: list[object] = []
    child = new_child(f'send(\'{{"kind": "progress", "step": 1}}\\n{READY}\'); time.sleep(60)')

    def on_progress(fields: object) -> bool:
        seen.append(fields)
        return True

    found = child.answer(encode("go"), "ready", on_progress)
    assert found == {"value": 7}
    assert [fields for fields in seen if fields] == [{"step": 1}]
    assert child.running


@pytest.mark.parametrize(
    "sent",
    [
        "'no json'",
        "'[]'",
        "'7'",
        "'{}'",
        "'[' * 50_000",
        "'9' * 50_000",
        "chr(0) + chr(255)",
        "'x' * (3 << 20)",
        f"""'{{"kind": "ready", "value": "' + 'x' * {LINE_BYTES} + '"}}'""",
        """'{"kind": []}' + chr(10) + '{"kind": ["ready"]}' + chr(10) + 'end'""",
    ],
)
def test_output_that_is_no_message_fails_the_work(sent: str, new_child: NewChild) -> None:
    child = new_child(f"send({sent} + chr(10)); time.sleep(60)")
    with pytest.raises(TrainingFailed, match=r"^the child sent an invalid message$"):
        child.answer(encode("go"), "ready")
    assert not child.running


def test_endless_output_neither_fills_the_memory_nor_hides_a_stop(new_child: NewChild) -> None:
    child = new_child('while True: send(\'{"kind": "log", "text": "x"}\\n\' * 100)')
    before = psutil.Process().memory_info().rss
    count = iter(range(5000))
    logging.disable(logging.INFO)
    try:
        assert child.answer(encode("go"), "ready", lambda _: next(count, None) is not None) is None
    finally:
        logging.disable(logging.NOTSET)
    assert psutil.Process().memory_info().rss - before < 50_000_000


def test_messages_that_nobody_reads_are_not_collected(new_child: NewChild) -> None:
    child = new_child(f"send('{READY}')\nwhile True: send('{READY}' * 100)")
    assert child.answer(encode("go"), "ready")
    while child._messages.qsize() < PENDING:
        time.sleep(0.01)
    assert child._messages.full()


def test_a_child_that_ends_leaves_no_thread_behind(new_child: NewChild) -> None:
    """Not even one whose messages nobody has read: more of them are in the pipe than in the queue."""
    before = set(threading.enumerate())
    child = new_child(f"send('{READY}')\nwhile True: send('{READY}' * 100)", check=lambda: None)
    assert child.answer(encode("go"), "ready")
    while not child._messages.full():
        time.sleep(0.01)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 4, "for commands, messages, other output and the check"
    child.end()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()


def test_long_lines_of_output_are_logged_in_parts(new_child: NewChild, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise, an endless line would fill the memory."""
    child = new_child(f"os.write(2, b'y' * {2 * TEXT_LENGTH} + b'end\\nlast\\n'); send('{READY}'); time.sleep(60)")
    assert child.answer(encode("go"), "ready")
    while "the child: last" not in caplog.messages:
        time.sleep(0.01)
    long = f"the child: {'y' * TEXT_LENGTH}"
    assert caplog.messages == [long, long, "the child: end", "the child: last"]


@pytest.fixture(autouse=True)
def short_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.5)


def test_a_childs_texts_are_single_short_lines(new_child: NewChild, caplog: pytest.LogCaptureFixture) -> None:
    forged = "2026-01-01 00:00:00 INFO run forged: submitted"
    body = (
        f"os.write(2, b'first\\r{forged}\\n\\x1b[2Jsecond\\n')\n"
        f"for _ in range({3 * OUTPUT_LINES}): os.write(2, b'y' * {3 * TEXT_LENGTH} + b'\\n')\n"
        "time.sleep(1)\n"
        f'send(\'{{"kind": "log", "level": 50, "text": "one\\\\n{forged}"}}\\n\')\n'
        f'send(\'{{"kind": "failed", "error": "InvalidInput", "reason": "bad\\\\n{forged}"}}\\n\')'
    )
    with caplog.at_level(logging.INFO), pytest.raises(InvalidInput, match=f"^bad {forged}$"):
        new_child(body).answer(encode("go"), "ready")
    assert f"the child: first {forged}" in caplog.messages
    assert "the child: [2Jsecond" in caplog.messages
    assert f"one {forged}" in caplog.messages
    assert not any("\n" in message or "\x1b" in message for message in caplog.messages)
    assert len(caplog.messages) <= OUTPUT_LINES + 1
    assert max(map(len, caplog.messages)) <= TEXT_LENGTH + len("the child: ")
    assert max(record.levelno for record in caplog.records) < logging.CRITICAL


def test_a_child_cannot_fill_the_log_with_its_messages(new_child: NewChild, caplog: pytest.LogCaptureFixture) -> None:
    sent = '{"kind": "log", "level": 30, "text": "x"}\\n'
    child = new_child(f"for _ in range({3 * OUTPUT_LINES}): send('{sent}')\nsend('{READY}'); time.sleep(60)")
    with caplog.at_level(logging.INFO):
        child.answer(encode("go"), "ready")
    assert caplog.messages == ["x"] * OUTPUT_LINES


def test_a_child_that_reads_no_commands_does_not_block_its_parent(new_child: NewChild) -> None:
    child = new_child("time.sleep(60)")
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            child.answer(encode("go") + bytes(1 << 20), "ready", seconds=1.0)  # more than a pipe holds
        except TrainingFailed as error:
            raised.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(30.0)
    assert [str(error) for error in raised] == ["the child did not end within 1 seconds and was killed"]


def test_a_child_is_killed_at_its_time_limit_though_it_reports_progress(new_child: NewChild) -> None:
    child = new_child('while True: send(\'{"kind": "progress"}\\n\'); time.sleep(0.1)')
    seen: list[psutil.Process] = []

    def on_progress(_: object) -> bool:
        seen[:] = [psutil.Process(child.pid)]
        return True

    with pytest.raises(TrainingFailed, match=r"^the child did not end within 1 seconds and was killed$"):
        child.answer(encode("go"), "ready", on_progress, seconds=1.0)
    wait_until_gone(seen)


@pytest.mark.parametrize("idle", [False, True], ids=["with a command", "without a command"])
def test_a_child_that_fails_its_check_is_killed(
    idle: bool, new_child: NewChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.05)
    failing, checks = threading.Event(), list[None]()

    def check() -> None:
        checks.append(None)
        if failing.is_set():
            raise TrainingFailed("the child is up to something")

    child = new_child(f"send('{READY}')\nsys.stdin.readline(); time.sleep(60)", check=check)
    for _ in range(2):  # the second one is not blamed for the first, and is checked too
        failing.clear()
        assert child.answer(encode("go"), "ready") == {"value": 7}
        process, seen = psutil.Process(child.pid), len(checks)
        while len(checks) < seen + 2:
            time.sleep(0.01)
        failing.set()
        if idle:
            process.wait(30)
        with pytest.raises(TrainingFailed, match=r"^the child is up to something$"):
            child.answer(encode("go"), "ready")
        assert not child.running


def test_a_child_inherits_nothing_but_what_it_is_given(new_child: NewChild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    secret = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(secret, True)
    body = (
        "import json\n"
        "found = {'kind': 'ready', 'files': sorted(map(int, os.listdir('/proc/self/fd'))), 'env': dict(os.environ)}\n"
        "send(json.dumps(found) + chr(10)); time.sleep(60)"
    )
    found = new_child(body).answer(encode("go"), "ready")
    os.close(secret)
    assert found
    assert set(found["files"]) <= {0, 1, 2, 3}  # 3: of the listing itself
    assert "SECRET" not in found["env"]
