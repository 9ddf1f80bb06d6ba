from __future__ import annotations

import pytest

from moonfed.errors import InvalidInput
from moonfed.validate import require_line
from tests.support.refusals import refused


@pytest.mark.parametrize(
    "character", ["\n", "\r", "\x1b", "\x7f", "\x85", "\u202e", "\u200b", "\ud800", "\u2028", "\u2029"]
)
def test_text_that_could_forge_a_line_or_move_a_cursor_is_rejected(character: str) -> None:
    require_line("name", "Ünï cödé 日本 😀")
    with refused(InvalidInput, "name"):
        require_line("name", f"digits{character}")
