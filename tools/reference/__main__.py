"""`make reference`: writes docs/reference/ from the programs, as far as its pages are generated."""

from __future__ import annotations

from pathlib import Path

from tools.reference.commands import PROGRAMS, program_page
from tools.reference.settings import settings_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def generated() -> dict[str, str]:
    """Return the content of each page by its file's name."""
    return {f"{name}.md": program_page(name) for name in PROGRAMS} | {"settings.md": settings_page()}


if __name__ == "__main__":
    for file, content in generated().items():
        (FOLDER / file).write_text(content)
