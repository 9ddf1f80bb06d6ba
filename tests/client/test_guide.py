"""The guide and the scripts in examples/: run with a real coordinator, and accepted by type checkers."""

from __future__ import annotations

import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from moonfed.bundle.files import write_bundle
from moonfed.client import AsyncCoordinator, Coordinator
from moonfed.export import build_bundle
from moonfed.transport.operator_connection import IDENTITY_VARIABLE
from tests.client.conftest import Fleet
from tests.support.release_fleet import create, signed_release

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "python-client.md"
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORTS = """
import numpy
import pandas
from torch import nn

from moonfed.client import *
from moonfed.export import build_bundle
"""


def blocks() -> list[str]:
    return BLOCK.findall(GUIDE.read_text())


@pytest.mark.timeout(200)
def test_the_guide_runs_as_one_program(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(IDENTITY_VARIABLE, str(fleet.identity))
    write_bundle(tmp_path / "digits-bundle", fleet.bundle)
    calls = fleet.coordinators.operator()
    names: dict[str, object] = {}
    with calls.channel:
        for block in blocks()[:-1]:  # tests/export/test_build.py runs the last one
            if "coordinator.releases(" in block:
                create(calls, signed_release("digits", fleet.bundle, name="digits"))
            exec(compile(block, str(GUIDE), "exec"), names)
    printed = capsys.readouterr().out
    assert "there is no run 'nothing'" in printed
    assert "round 3: 3 updates" in printed
    assert "digits finished" in printed


def test_the_scripts_run(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = str(fleet.identity)
    for script, words in (("watch_run.py", [str(fleet.path), identity]), ("watch_runs_async.py", [identity])):
        monkeypatch.setattr(sys, "argv", [script, *words])
        with Coordinator(identity) as coordinator:
            waiting = coordinator.start(fleet.path, rounds=2)
            with pytest.raises(SystemExit) as end:
                runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
        assert end.value.code == 0
        assert waiting.run
    printed = capsys.readouterr().out
    assert "finished" in printed
    assert "weight: (12,)" in printed


def examples() -> str:
    """Every docstring's example as a function."""
    functions = []
    for client in (Coordinator, AsyncCoordinator):
        kind = "async def" if client is AsyncCoordinator else "def"
        documented = [("class", client), *inspect.getmembers(client, inspect.isfunction)]
        for name, found in documented:
            body = (inspect.getdoc(found) or "").partition("Example:\n")[2]
            if body:
                arguments = f"coordinator: {client.__name__}, token: NewToken"
                code = textwrap.indent(textwrap.dedent(body), "    ")
                functions.append(f"{kind} {client.__name__}_{name}({arguments}) -> None:\n{code}\n")
    body = (inspect.getdoc(build_bundle) or "").partition("Example:\n")[2]
    functions.append(f"def build() -> None:\n{textwrap.indent(textwrap.dedent(body), '    ')}\n")
    assert len(functions) > 50
    return IMPORTS + "\n\n" + "\n\n".join(functions)


@pytest.mark.timeout(300)
def test_pyright_accepts_every_example(tmp_path: Path) -> None:
    program = shutil.which("pyright", path=str(Path(sys.executable).parent))
    version = subprocess.run([program, "--version"], capture_output=True, text=True) if program else None
    if version is None or version.returncode != 0:
        pytest.skip("pyright cannot run here: it needs node, which it downloads unless it is installed")
    (tmp_path / "docstrings.py").write_text(examples())
    (tmp_path / "guide.py").write_text("\n".join(blocks()))
    for script in SCRIPTS:
        shutil.copy(script, tmp_path)
    parts = [str(ROOT / part) for part in ("common", "proto", "client", "export", "release", "serving")]
    settings = {
        "extraPaths": parts,
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "useLibraryCodeForTypes": False,  # of pandas, which takes half the time and has no types of its own
        "reportMissingTypeStubs": False,
        "reportUnknownMemberType": False,
        "reportUnknownVariableType": False,
        "reportUnknownArgumentType": False,
        "reportUnusedVariable": False,
        "reportWildcardImportFromLibrary": False,
        "reportUnusedExpression": False,
        "reportMatchNotExhaustive": False,  # nobody need handle every event
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [str(program), "--outputjson", "--pythonpath", sys.executable, "--project", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        check=False,
    )
    report = json.loads(done.stdout)
    found = [
        f"{problem['file']}:{problem['range']['start']['line'] + 1}: {problem['message']}"
        for problem in report["generalDiagnostics"]
        if problem["severity"] == "error"
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] == 2 + len(SCRIPTS)
