"""The notebook in examples/, run by a real kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "federation.ipynb"
MAX_BYTES = 200_000
RUN = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
where = {"metadata": {"path": sys.argv[2]}}
NotebookClient(notebook, timeout=200, record_timing=False, kernel_name="python3", resources=where).execute()
nbformat.write(notebook, sys.argv[3])
"""
FORK = f"""
import sys
sys.path.append({str(ROOT)!r})
from tests.support.forked_programs import fork_programs
fork_programs()
"""


def outputs(notebook: Path) -> str:
    """The text of all outputs, and the types of the others."""
    cells = json.loads(notebook.read_text())["cells"]
    shown = [output for cell in cells for output in cell.get("outputs", [])]
    return json.dumps(shown)


# The fork server must not be the kernel's: it outlives the kernel, and would hold the pipe that is read to its end.
@pytest.mark.usefixtures("forked_programs")
@pytest.mark.timeout(400)
def test_the_notebook_goes_from_data_to_weights(tmp_path: Path) -> None:
    executed = tmp_path / "executed.ipynb"
    own = {name: str(tmp_path / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "TMPDIR")}
    (tmp_path / "TMPDIR").mkdir()
    startup = tmp_path / "IPYTHONDIR" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "programs.py").write_text(FORK)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK), str(tmp_path), str(executed)],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = outputs(executed)
    assert "round 6: 3 updates, training loss" in shown
    assert "finished" in shown
    assert shown.count("image/png") == 2
    assert "encoder.features.0.weight" in shown
    assert not list((tmp_path / "TMPDIR").glob("moonfed-*")), "the last cell cleans up"


def test_the_notebook_is_small_and_names_no_machine() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    assert "/tmp/" not in NOTEBOOK.read_text()
