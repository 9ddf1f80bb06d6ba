"""Pages that show a source file, a notebook or a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LANGUAGES = {
    ".cfg": "cfg",
    ".json": "json",
    ".proto": "protobuf",
    ".py": "python",
    ".service": "ini",
    ".sh": "sh",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
PICTURES = (".png", ".svg", ".jpg", ".pdf")
FENCE = "`````"  # longer than those in a file


def is_text(file: Path) -> bool:
    """Return whether a file is shown as text rather than copied."""
    return file.is_file() and file.suffix not in PICTURES


def source_page(file: Path, name: str) -> str:
    """Return the page of a file or folder; `name`: its path in the repository."""
    if file.is_dir():
        files = sorted(item.name for item in file.iterdir() if not item.name.startswith((".", "__pycache__")))
        return f"# {name}/\n\n" + "".join(f"- [{item}]({item})\n" for item in files)
    if file.suffix == ".ipynb":
        return f"# {name}\n\n" + "\n".join(map(_cell, json.loads(file.read_text())["cells"]))
    return f"# {name}\n\n{_block(file.read_text(), LANGUAGES.get(file.suffix, 'text'))}"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return f"{source}\n"
    outputs = "".join("".join(map(_output, cell.get("outputs", ()))))
    return _block(source, "python") + (f"\n{_block(outputs, 'text')}" if outputs else "")


def _output(output: dict[str, Any]) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))


def _block(text: str, language: str) -> str:
    return f"{FENCE}{language}\n{text.rstrip()}\n{FENCE}\n"
