"""Running `moonfed-experiments reproduce`."""

import json
from pathlib import Path

from typer.testing import CliRunner

from moonfed.experiments.cli import app

PNG = b"\x89PNG\r\n\x1a\n"


def reproduce(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
