"""`python -m benchmarks`: the named benchmarks, their reports, and no trace in the user's home directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as program
from benchmarks.report import Figure, Tables
from moonfed.signing.key_files import KEYS_VARIABLE, open_signer

pytestmark = pytest.mark.slow

Run = Callable[..., None]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory of a user without keys."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(KEYS_VARIABLE, str(home / "keys"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)

    def call(*names: str) -> None:
        monkeypatch.setattr("sys.argv", ["benchmarks", *names])
        program.main()

    return call


def test_signing_leaves_no_trace_in_the_home_directory(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Path] = []

    def signing() -> Tables:
        signer = open_signer([], lambda _: None)
        used.append(Path(os.environ[KEYS_VARIABLE]))
        yield [Figure(name="keys", unit="", value=len(signer.keys))]

    monkeypatch.setitem(program.BENCHMARKS, "fleet", signing)
    run("fleet")
    assert not list(home.rglob("*"))
    assert not used[0].exists()


def test_named_benchmarks_are_measured_in_order_and_saved(
    home: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def named(name: str) -> Callable[[], Tables]:
        def measure() -> Tables:
            measured.append(name)
            yield [Figure(name=name, unit="s", value=1.0)]

        return measure

    for name in program.BENCHMARKS:
        monkeypatch.setitem(program.BENCHMARKS, name, named(name))
    run("serving", "cpu")
    assert measured == ["serving", "cpu"]
    for name in measured:
        report = json.loads((tmp_path / "build" / "bench" / f"{name}.json").read_bytes())
        assert [figure["name"] for figure in report["figures"]] == [name]
    measured.clear()
    run()
    assert measured == list(program.DEFAULT)


def test_an_unknown_benchmark_is_rejected_by_name(run: Run) -> None:
    with pytest.raises(SystemExit, match=r"^benchmark is 'speed'; it must be one of device, tasks, "):
        run("speed")
