"""Tables of Markdown documents."""

from __future__ import annotations


def rows(card: str) -> list[list[str]]:
    """Return the cells of all tables."""
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in card.splitlines() if line.startswith("|")
    ]
