"""The README and the guides: their commands are valid, and their keys can sign."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from moonfed.cli.program import app
from moonfed.release.signing import ReleaseSigner

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"


def command_lines(name: str) -> list[list[str]]:
    text = (DOCS / name).read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in blocks.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (
            "../README.md",
            {"onnx", "repository", "serve", "predict", "follow", "roll-back", "bundle", "inspect", "evaluate"}
            | {"release create"},
        ),
        ("export.md", {"onnx"}),
        ("deployment.md", {"release create"}),
        ("release.md", {"repository", "serve", "predict", "follow", "roll-back", "sign-release"}),
        ("serving.md", {"serve", "api-key"}),
    ],
)
def test_every_documented_command_line_is_valid(document: str, named: set[str]) -> None:
    program = typer.main.get_command(app)
    found = [words[1:] for words in command_lines(document) if words[0] == "moonfed-export"]
    names = set()
    for arguments in found:
        command, path = program, list[str]()
        while hasattr(command, "commands"):  # a group
            path.append(arguments.pop(0))
            command = command.commands[path[-1]]
        names.add(" ".join(path))
        with command.make_context(path[-1], arguments) as context:  # raises what it cannot parse
            assert not context.args, arguments
    assert names == named


def test_the_documented_keys_sign_and_verify(tmp_path: Path, verifies: Callable[[Path, Path], bool]) -> None:
    pytest.importorskip("model_signing", reason="needs model-signing")
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    from tests.release.test_signing import FILES

    for words in command_lines("release.md"):
        if words[0] == "openssl":
            subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    version = tmp_path / "10"
    version.mkdir()
    signature = ReleaseSigner(tmp_path / "release.pem").sign(FILES, "digits", 10)
    for name, content in {**FILES, "model.sig": signature}.items():
        (version / name).write_bytes(content)
    assert verifies(version, tmp_path / "release.pub")
