"""Trials of a release: every extra has one or a reason, programs are started, and sizes are added up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tomllib

from moonfed.version import RELEASE
from tools.try_release import (
    NEEDED,
    NOT_INSTALLED,
    WITHOUT_EXTRA,
    TrialError,
    check_imports,
    check_missing_extras,
    check_programs,
    size,
)

ROOT = Path(__file__).parents[2]
HERE = Path(sys.prefix)  # an environment with every extra


def test_every_extra_is_tried_or_has_a_reason() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert NEEDED.keys() | NOT_INSTALLED.keys() == extras.keys()
    assert not NEEDED.keys() & NOT_INSTALLED.keys()
    assert WITHOUT_EXTRA.keys() <= NEEDED.keys()


def test_the_programs_start_and_print_the_release() -> None:
    check_programs(HERE, RELEASE)
    with pytest.raises(TrialError, match=r"moonfed-\w+ --version"):
        check_programs(HERE, "0.0.1")


def test_what_an_extra_is_for_is_imported() -> None:
    check_imports(HERE, NEEDED["tracing"])
    with pytest.raises(TrialError, match="absent"):
        check_imports(HERE, f"{NEEDED['tracing']}, moonfed.absent")


@pytest.mark.parametrize(("message", "code"), [("moonfed[console]", 3), ("moonfed[coordinator]", 0)])
def test_a_command_that_does_not_name_its_extra_is_reported(message: str, code: int, tmp_path: Path) -> None:
    program = tmp_path / "bin" / WITHOUT_EXTRA["coordinator"].split()[0]
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit {code}\n")
    program.chmod(0o755)
    with pytest.raises(TrialError, match=rf"{WITHOUT_EXTRA['coordinator']} .*exit code {code}"):
        check_missing_extras(tmp_path)


def test_a_size_has_every_file_once(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_bytes(bytes(1000))
    (tmp_path / "README").write_bytes(bytes(300))
    (tmp_path / "package" / "link.py").symlink_to("module.py")
    assert size(tmp_path) == 1300
