"""A program's errors become one sentence and an exit code; unexpected ones keep their traceback."""

from pathlib import Path

import pytest

from moonfed import errors
from moonfed.command_line.exit_codes import exit_code
from moonfed.command_line.programs import INTERRUPTED, errors_as_exit_codes, new_app, run_program

# Parts may define errors of their own, which they translate themselves.
KINDS = [kind for kind in errors.MoonfedError.__subclasses__() if kind.__module__ == errors.__name__]
DOCUMENT = Path(__file__).parents[3] / "docs" / "errors" / "README.md"


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_an_exit_code_of_its_own_kind(kind: type[errors.MoonfedError]) -> None:
    assert 2 <= exit_code(kind("x")) <= 14


def test_the_document_lists_every_exit_code() -> None:
    section = DOCUMENT.read_text().partition("\n## By exit code\n")[2].partition("\n## ")[0]
    listed = {int(row.split("|")[1]) for row in section.splitlines() if row[:3].strip("| ").isdigit()}
    assert listed == {0, exit_code(errors.MoonfedError("x")), INTERRUPTED, *(exit_code(kind("x")) for kind in KINDS)}


def test_an_error_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"), errors_as_exit_codes("moonfed-test"):
        raise errors.InvalidInput(field="mu", value=-1, allowed="positive")
    assert capsys.readouterr().err == "moonfed-test: mu is -1; it must be positive (docs: errors/invalid-input)\n"


def test_a_file_that_cannot_be_used_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"), errors_as_exit_codes("moonfed-test"):
        open("/nowhere/at/all").close()  # noqa: PTH123
    sentence = "moonfed-test: /nowhere/at/all: No such file or directory (docs: errors/file-error)\n"
    assert capsys.readouterr().err == sentence


def test_a_missing_package_names_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    def app(prog_name: str) -> None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")

    with pytest.raises(SystemExit, match="3"):
        run_program(app, "moonfed-test", extra="experiments")  # type: ignore[arg-type] # any callable does
    assert "pip install 'moonfed[experiments]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("advice", "sentence"), [((), "interrupted"), (("start it again",), "interrupted; start it again")]
)
def test_an_interrupted_command_reports_it(
    advice: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app("A program that is interrupted.")

    @app.command("work")
    def work() -> None:
        raise KeyboardInterrupt(*advice)

    monkeypatch.setattr("sys.argv", ["moonfed-test", "work"])
    with pytest.raises(SystemExit, match="130"):
        run_program(app, "moonfed-test")
    assert capsys.readouterr().err == f"moonfed-test: {sentence} (docs: errors/interrupted)\n"


def test_a_command_that_ends_with_130_by_itself_was_not_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app("A program that has said its last word.")

    @app.command("work")
    def work() -> None:
        raise SystemExit(130)

    monkeypatch.setattr("sys.argv", ["moonfed-test", "work"])
    with pytest.raises(SystemExit, match="130"):
        run_program(app, "moonfed-test")
    assert capsys.readouterr().err == ""


def test_an_internal_error_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), errors_as_exit_codes("moonfed-test"):
        print(1 / 0)
