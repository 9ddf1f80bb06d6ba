"""Child processes, which never survive this process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from moonfed.errors import MoonfedError, Unavailable
from moonfed.experiments.child_processes import ChildProcesses, run
from tests.support.refusals import refused

WAITS = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    "print('ready', flush=True); signal.pause()"
)
FAILS = "import sys; print('starting', file=sys.stderr); sys.exit('the port is taken')"


def test_programs_are_stopped_with_the_block_and_handlers_restored(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ChildProcesses(tmp_path / "logs") as children:
        programs = [children.start(name, "python", "-c", WAITS) for name in ("one", "two")]
        for name in ("one", "two"):
            assert children.first_line(name) == "ready\n"
        assert children.ended() is None
        assert signal.getsignal(signal.SIGTERM) is not before
    assert [program.poll() for program in programs] == [0, 0]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_program_that_ends_before_it_is_ready_is_named_with_its_last_words(tmp_path: Path) -> None:
    with ChildProcesses(tmp_path) as children:
        children.start("server", "python", "-c", FAILS)
        with refused(Unavailable, "program", "server"):
            children.first_line("server")
        children.programs["server"].wait(20)
        assert children.ended() == "server"
        children.start("silent", "python", "-c", "").wait(20)
        assert children.last_log_line("silent") == "it logged nothing"


def test_a_command_returns_its_output_or_raises_its_last_line() -> None:
    assert run("python", "-c", "print('done')") == "done\n"
    with pytest.raises(MoonfedError, match=r"^python -c import sys; .* failed: the port is taken$"):
        run("python", "-c", FAILS)
