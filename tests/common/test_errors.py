"""Errors keep their class across processes, and each has a page that explains it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moonfed import errors
from moonfed.command_line.exit_codes import exit_code
from moonfed.command_line.programs import FILE_ERROR, INTERRUPTED, INTERRUPTION
from moonfed.transport.grpc_status import DOCS_KEY, to_status

PAGES = Path(__file__).parents[2] / "docs" / "errors"
OTHERS = {FILE_ERROR: 1, INTERRUPTION: INTERRUPTED}  # pages of exits without a MoonfedError


def tree(kind: type[errors.MoonfedError]) -> Iterator[type[errors.MoonfedError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


KINDS = list(tree(errors.MoonfedError))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("quorum", 5, "quorum is 5; it must be fine"),
        ("holdout", 0.5, "holdout is 0.5; it must be fine"),
        ("name", "it's", """name is "it's"; it must be fine"""),
        ("data", Path("a/b"), "data is 'a/b'; it must be fine"),
        ("columns", ["a"], "columns is ['a']; it must be fine"),
        ("cohort", None, "cohort is None; it must be fine"),
    ],
)
def test_field_value_and_allowed_form_the_sentence(field: str, value: object, expected: str) -> None:
    error = errors.InvalidInput(field=field, value=value, allowed="fine")
    assert str(error) == expected
    assert (error.field, error.value, error.allowed) == (field, value, "fine")


def test_a_sentence_may_end_otherwise() -> None:
    error = errors.NotFound(field="data", value=Path("a"), rest="; there is none")
    assert (str(error), error.value, error.allowed) == ("data is 'a'; there is none", Path("a"), None)


def test_a_whole_sentence_keeps_its_words_and_may_have_values() -> None:
    assert str(errors.Corrupt("no such luck")) == "no such luck"
    error = errors.NotFound("there is no run 'a'", field="run", value="a")
    assert (str(error), error.field, error.value) == ("there is no run 'a'", "run", "a")


def test_values_survive_the_way_to_another_process() -> None:
    error = copy.copy(errors.InvalidInput(field="epochs", value=0, allowed="from 1"))
    assert (str(error), error.field, error.value) == ("epochs is 0; it must be from 1", "epochs", 0)


@pytest.mark.parametrize("kind", [errors.MoonfedError, errors.SchemaMismatch, errors.Corrupt])
def test_an_error_from_a_process_is_rebuilt(kind: type[errors.MoonfedError]) -> None:
    sentence = errors.error_from_process(kind.__name__, "tensor 'a' is missing")
    assert type(sentence) is kind
    assert str(sentence) == "tensor 'a' is missing"


@pytest.mark.parametrize("name", ["ZeroDivisionError", "error_from_process", "__name__", ""])
def test_any_other_name_is_a_failure_of_training(name: str) -> None:
    assert type(errors.error_from_process(name, "why")) is errors.TrainingFailed


def test_every_error_has_a_page_of_its_own() -> None:
    slugs = [kind.slug for kind in KINDS]
    assert len(set(slugs)) == len(slugs)
    assert {page.stem for page in PAGES.glob("*.md")} == {"README", *slugs, *OTHERS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_gives_the_class_the_exit_code_and_the_status(kind: type[errors.MoonfedError]) -> None:
    error = kind("x")
    text = (PAGES / f"{kind.slug}.md").read_text()
    assert f"\n`{kind.__name__}`, exit code {exit_code(error)}, `{to_status(error)[0].name}`. Retried: " in text
    assert re.findall(r"\*\*([A-Z][a-z ]+)[.?]\*\*", text) == ["What happened", "Why", "What to do"]


def test_the_index_lists_every_page_with_its_exit_code() -> None:
    text = (PAGES / "README.md").read_text()
    listed = {slug: int(code) for code, slug in re.findall(r"^\| (\d+) \| \[([a-z-]+)\]\(\2\.md\)", text, re.MULTILINE)}
    assert listed == OTHERS | {kind.slug: exit_code(kind("x")) for kind in KINDS}
    for kind in KINDS:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{to_status(kind('x'))[0].name}`"))
        assert f"({kind.slug}.md)" in row


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_ends_with_its_page_once(kind: type[errors.MoonfedError]) -> None:
    message = errors.explained(kind("no disk (full)"))
    assert message == f"no disk (full) (docs: errors/{kind.slug})"
    assert errors.explained(errors.MoonfedError(f"a program failed: {message}")) == f"a program failed: {message}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_names_the_page_beside_its_sentence(kind: type[errors.MoonfedError]) -> None:
    _, details, metadata = to_status(kind("x"))
    assert dict(metadata)[DOCS_KEY] == f"errors/{kind.slug}"
    assert kind is errors.MoonfedError or details == "x"


def test_an_unknown_error_is_an_internal_one() -> None:
    assert dict(to_status(ZeroDivisionError("secret"))[2]) == {DOCS_KEY: "errors/internal-error"}
