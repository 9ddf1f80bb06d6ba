"""The command that describes the columns of tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.errors import InvalidInput
from moonfed.transport.operator_options import JsonOption

if TYPE_CHECKING:
    from moonfed.data.table_spec import Column
    from moonfed.export.table_description import Scale, TableDescription

SHOWN = 8  # categories


def columns(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="An example: a .csv or .parquet file.")],
    targets: Annotated[
        list[str], typer.Option("--target", metavar="COLUMN", help="The column that names each row's class.")
    ],
    output: Annotated[Path, typer.Option(metavar="COLUMNS.json", help="Where to write the description.")],
    ignored: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="COLUMN", help="A column to leave out, such as a row number; repeatable."),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of categories, also if they are numbers; repeatable."),
    ] = None,
    numeric: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of numbers, whose other cells are errors; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe the columns of tables from an example, for `bundle --columns`.

    The description holds the order of the columns, their categories, the names of the classes, and the mean and
    standard deviation of numeric columns. It may be edited. A bundle contains it, so that all devices encode their rows
    in the same way.

    Example: moonfed-export columns customers.csv --target churn --ignore id --output columns.json
    """
    from moonfed.export.table_description import write_description
    from moonfed.export.table_inference import ColumnChoices, infer_description

    if len(targets) > 1:
        raise InvalidInput(
            f"target is {' and '.join(map(repr, targets))}; it must be one column, since a model predicts one class "
            "for each row; leave the others out with --ignore"
        )
    choices = ColumnChoices(
        target=targets[0], ignored=ignored or (), categorical=categorical or (), numeric=numeric or ()
    )
    description = infer_description(table, choices)
    write_description(output, description)
    if as_json:
        widths = {"columns": len(description.table.columns), "features": description.table.width}
        print_json({"output": str(output), "classes": list(description.classes), **widths})
    else:
        print(describe_columns(description))


def describe_columns(description: TableDescription) -> str:
    """Format a line for each column."""
    rows = [(column.name, _kind(column, description.scales.get(column.name))) for column in description.table.columns]
    rows.append((description.table.target, f"target, classes {_shown(description.classes)}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _kind(column: Column, scale: Scale | None) -> str:
    if scale is None:
        return f"categories {_shown(column.categories)}"
    return f"numeric, mean {scale.mean:g}, standard deviation {scale.deviation:g}"


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)})" if len(names) > SHOWN else "")
