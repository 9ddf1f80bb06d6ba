"""The process in which plans are checked on an engineer's or operator's machine, with real plans."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from moonfed.bundle.manifest import GRAPH_PLAN_FILE, PLAN_FILE
from moonfed.errors import TrainingFailed, UnsafePlan
from moonfed.sandbox import sandboxed_process
from moonfed.sandbox.messages import encode
from moonfed.sandbox.plan_process import plan_process, require_safe_plan
from moonfed.sandbox.policy import available_level
from moonfed.signing.key_files import KEYS_VARIABLE
from tests.support.attack_plans import Harmless, archive_of
from tests.support.coordinator import harmless_plan
from tests.support.engineers_attacks import WRITERS
from tests.support.graph_containers import linear, written

STRICT = pytest.mark.skipif(available_level() != "strict", reason="needs Landlock and seccomp")


def test_a_plan_that_devices_accept_is_accepted_and_this_process_loads_nothing() -> None:
    loaded: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._C.import_ir_module_from_buffer", lambda *_: loaded.append("plan"))
        patch.setattr("moonfed.plan.inspection.archive.inspect_archive", lambda *_: loaded.append("archive"))
        require_safe_plan({PLAN_FILE: harmless_plan()})
    assert loaded == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_plan_that_devices_reject_is_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafePlan, match=WRITERS[name].rejection):
        require_safe_plan({PLAN_FILE: WRITERS[name].plan(tmp_path / "planted")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (b"no archive", UnsafePlan, "not a readable archive"),
        (b"", UnsafePlan, "not a readable archive"),
        (None, TrainingFailed, "no method 'begin_round'"),
    ],
)
def test_what_is_no_plan_is_rejected(content: bytes | None, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        require_safe_plan({PLAN_FILE: archive_of(Harmless()) if content is None else content})


def test_the_graphs_of_a_bundle_are_checked_too(tmp_path: Path) -> None:
    graphs = written(tmp_path, linear()).read_bytes()
    require_safe_plan({PLAN_FILE: harmless_plan(), GRAPH_PLAN_FILE: graphs})
    hostile = graphs.replace(b"aten::linear", b"aten::from_file")
    for plans in ({PLAN_FILE: harmless_plan(), GRAPH_PLAN_FILE: hostile}, {PLAN_FILE: b"", GRAPH_PLAN_FILE: graphs}):
        with pytest.raises(UnsafePlan):
            require_safe_plan(plans)


def test_without_torch_a_plan_is_only_inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = f"import sys; sys.modules['torch'] = None; {sandboxed_process.START}"
    monkeypatch.setattr(sandboxed_process, "START", missing)
    require_safe_plan({PLAN_FILE: harmless_plan()})
    require_safe_plan({PLAN_FILE: archive_of(Harmless())})
    require_safe_plan({GRAPH_PLAN_FILE: written(tmp_path, linear()).read_bytes()})
    with pytest.raises(UnsafePlan):
        require_safe_plan({GRAPH_PLAN_FILE: b"{}"})
    for name, attack in WRITERS.items():
        if attack.on_load:
            with pytest.raises(UnsafePlan, match=attack.rejection):
                require_safe_plan({PLAN_FILE: WRITERS[name].plan(tmp_path / "planted")})


@STRICT
def test_the_process_can_read_no_keys_and_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the directory above them is searched for modules, as a .pth file may name it."""
    secrets = {name: tmp_path / name / "secret" for name in ("keys", "project", "elsewhere")}
    for file in secrets.values():
        file.parent.mkdir()
        file.write_text("a key")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "keys"))
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3]), str(tmp_path)])
    shared: Mapping[str, int] = {"file": os.open(os.devnull, os.O_RDONLY)}
    with plan_process("tests.support.probing_task", {"plan.pt": b""}, shared) as child:
        found = child.answer(encode("probe", paths=list(map(str, secrets.values()))), "probed")
    assert found
    assert found["read"] == dict.fromkeys(map(str, secrets.values()), "RuntimeError")
    assert not Path(found["cwd"]).exists(), "its files are deleted"
