"""The secret that a run draws its cohorts with reaches neither devices nor operators, in no form."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from moonfed.experiments.child_processes import run
from tests.support.forked_process import PATCHES
from tests.support.secret_draw import RECEIVED_FILE, forms, secret_of

from .conftest import Federation

pytestmark = pytest.mark.slow

RUNS = ("first", "second", "third", "private")


def test_nothing_that_a_device_or_an_operator_can_see_holds_the_secret(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    """Search every message and header that devices and operators receive, and all that their programs print or keep."""
    received, printed, exported = (federation.directory / name for name in ("received", "printed", "exported"))
    exported.mkdir()
    federation.serve("coordinator", "--log-level", "debug", "--log-format", "json")
    federation.enrol("cam-1", "cam-2", "cam-3")
    patches = {PATCHES: "tests.support.received_messages", RECEIVED_FILE: str(received)}
    with mock.patch.dict(os.environ, patches):
        for name in ("cam-1", "cam-2", "cam-3"):
            federation.start_device(name, "--log-level", "debug")
        federation.until_online(3)
        bundle = make_bundle("fedavg", epochs=1)
        options = ("--rounds", "3", "--minimum-devices", "3", "--quorum", "1", "--seed", "7")
        federation.start_run(bundle, "first", "--cohort", "2", *options)
        federation.start_run(bundle, "second", "--cohort", "67%", *options)
        federation.start_run(bundle, "third", "--asynchronous", "1", "--cohort", "2", *options)
        privacy = ("--privacy", "epsilon=90,delta=0.1", "--population", "3", "--clip-norm", "1")
        federation.start_run(bundle, "private", "--cohort", "2", *privacy, *options)
        for name in RUNS:
            federation.until_finished(name)
            evaluation = "evaluate --without-privacy" if name == "private" else "evaluate"
            for words in ("show", "watch", evaluation, "show --recipe", "show --json", "watch --json"):
                _see(printed, "run", *words.split(), name, *federation.operator)
            _see(printed, "run", "export", name, str(exported / name), "--to", "csv", "--devices", *federation.operator)
        for words in ("privacy show --all", "run list", "device list", "device show cam-1", "audit"):
            _see(printed, *words.split(), "--json", *federation.operator)
    federation.fleet.stop_all()

    seen = {str(path): path.read_bytes() for path in federation.directory.rglob("*") if _is_seen(federation, path)}
    assert b"cam-1" in seen[str(received)]
    assert sum(len(content) for content in seen.values()) > 100_000
    assert any(path.startswith(str(exported)) for path in seen)
    for name in RUNS:
        for form, text in forms(secret_of(federation.state, name)).items():
            assert [path for path, content in seen.items() if text in content] == [], (name, form)


def _see(printed: Path, *words: str) -> None:
    with printed.open("a") as file:
        file.write(run("moonfed-coordinator", *words))


def _is_seen(federation: Federation, path: Path) -> bool:
    """Return True for a file outside the coordinator's state: messages, output, logs, and what devices keep."""
    return path.is_file() and not path.is_relative_to(federation.state)
