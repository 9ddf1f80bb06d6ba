"""The reference pages follow from the programs."""

from __future__ import annotations

import pytest

from tools.reference.__main__ import FOLDER, generated
from tools.reference.markdown import bullet, code, table


def test_the_reference_is_up_to_date() -> None:
    for name, content in generated().items():
        assert (FOLDER / name).read_text() == content, f"{name}: run `make reference`"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            "moonfed-coordinator.md",
            "## device revoke\n\n```text\nmoonfed-coordinator device revoke [OPTIONS] DEVICE\n```",
        ),
        ("moonfed-coordinator.md", "- `--rounds N`: Rounds to commit. Default: `10`."),
        ("moonfed-client.md", "- `--data FOLDER|FILE|module:callable`: The same as for `run`. Required."),
        ("moonfed-coordinator.md", "Default: 20; with --json, all. At least 1."),
        ("moonfed-export.md", "moonfed-export predict [OPTIONS] PATH...\n"),
        ("moonfed-export.md", "- `--version N`: The version to sign. Default: all."),
        ("moonfed-client.md", "```text\npictures/            one folder of images per class"),
        (
            "settings.md",
            "| `deadline` | `--deadline` | `3600` | Maximum duration of an attempt at a round in seconds; with",
        ),
        ("settings.md", "| `MOONFED_IDENTITY` | `--identity` | moonfed-coordinator, moonfed-export |"),
    ],
)
def test_pages_hold_what_the_help_says(page: str, text: str) -> None:
    assert text in (FOLDER / page).read_text()


def test_markdown_of_pages() -> None:
    assert bullet("word " * 25).splitlines()[1].startswith("  word")
    assert table(("a", "b"), [("1|2", "3")]) == "| a | b |\n| --- | --- |\n| 1&#124;2 | 3 |\n"
    assert [code(value) for value in (True, 0.5, 3600.0, "all", None)] == [
        "`true`", "`0.5`", "`3600`", "`all`", "\N{EN DASH}",
    ]  # fmt: skip
