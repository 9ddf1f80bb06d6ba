"""Pages with all commands of a program: what each does, its examples, arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import typer

from moonfed.command_line.group import without_type
from tools.reference.markdown import GENERATED, bullet, fence, prose

PROGRAMS = {
    "moonfed-coordinator": "moonfed.coordinator.cli.program",
    "moonfed-client": "moonfed.edge_client.cli",
    "moonfed-export": "moonfed.cli.program",
    "moonfed-experiments": "moonfed.experiments.cli",
}
EVERYWHERE = ("--help",)  # options of every command
_NOTES = re.compile(r"  \[([^\]]*)\]$")
_EXAMPLE = re.compile(r"Examples?: (.+)", re.DOTALL)


def program_page(name: str) -> str:
    """Return the page of a program."""
    program = typer.main.get_command(import_module(PROGRAMS[name]).app)
    found = list(_commands(program, ()))
    links = [f"[`{' '.join(path)}`](#{'-'.join(path)}): {_summary(command)}" for path, command in found]
    sections = [_section(name, path, command) for path, command in found]
    about = _description(program.help or "", name)
    shared = f"Every command has `--help`; `{name} --version` prints the release."
    return (
        "\n".join([f"# {name}\n", GENERATED, about, prose(shared), *map(bullet, links), "", *sections]).rstrip() + "\n"
    )


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the commands below a group, with their words."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _summary(command: Any) -> str:
    return str(command.get_short_help_str(1000))


def _section(program: str, path: tuple[str, ...], command: Any) -> str:
    """Return what a page says about a command."""
    context = command.context_class(command, info_name=program)
    usage = " ".join([program, *path, *map(_piece, command.collect_usage_pieces(context))])
    lines = [f"## {' '.join(path)}\n", fence(usage, "text"), _description(command.help or "", program)]
    records = [(param.param_type_name, param.get_help_record(context)) for param in command.get_params(context)]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        shown = [
            _parameter(without_type(record[0], kind), record[1])
            for found, record in records
            if record and found == kind and record[0].split()[0].strip(",") not in EVERYWHERE
        ]
        if shown:
            lines += [f"**{title}**\n", *map(bullet, shown), ""]
    return "\n".join(lines)


def _piece(piece: str) -> str:
    """Return a piece of a usage without the braces that enclose a required argument."""
    return re.sub(r"^\{(.*)\}", r"\1", piece)


def _parameter(name: str, about: str) -> str:
    """Return a parameter as `name`: effect, with its default as code."""
    notes = _NOTES.search(about)
    text = _NOTES.sub("", about)
    for note in notes[1].split("; ") if notes else ():
        kind, _, value = note.partition(": ")
        title = {"default": "Default", "env var": "Environment variable"}.get(kind)
        text += f" {title}: `{value}`." if title else f" {note.capitalize().replace('X>=', 'At least ')}."
    return f"`{name}`: {text}"


def _description(docstring: str, program: str) -> str:
    """Return a docstring as Markdown: prose, and its examples and preformatted paragraphs as code."""
    blocks: list[tuple[str, str]] = []  # kind and text
    for paragraph in docstring.strip().split("\n\n"):
        title, _, body = paragraph.removeprefix("\b\n").partition("\n")
        if example := _EXAMPLE.fullmatch(paragraph):
            blocks.append(("sh", " ".join(example[1].split())))
        elif paragraph.startswith("\b\n"):
            lines = [line.removeprefix("  ") for line in body.splitlines()]
            commands = any(line.startswith(program) for line in lines)
            if title.rstrip(":") not in ("Example", "Examples"):
                blocks.append(("prose", title))
            blocks.append(("sh" if commands else "text", "\n".join(lines)))
        else:
            blocks.append(("prose", paragraph))
    return "\n".join(_block(kind, text) for kind, text in _joined(blocks))


def _joined(blocks: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return blocks with consecutive examples in one."""
    joined: list[tuple[str, str]] = []
    for kind, text in blocks:
        if joined and kind == joined[-1][0] == "sh":
            joined[-1] = (kind, f"{joined[-1][1]}\n{text}")
        else:
            joined.append((kind, text))
    return joined


def _block(kind: str, text: str) -> str:
    return prose(text) if kind == "prose" else fence(text, kind)
