"""The command that describes the columns of tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.bundle.manifest import CLASSIFICATION
from moonfed.command_line.programs import print_json
from moonfed.transport.operator_options import JsonOption

if TYPE_CHECKING:
    from moonfed.data.table_spec import Column
    from moonfed.export.table_description import Scale, TableDescription

SHOWN = 8  # categories


def columns(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="An example: a .csv or .parquet file.")],
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
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="COLUMN",
            help="The column that names each row's class, or one with values or labels (0, 1 or empty); repeatable.",
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="What a model predicts: classification, multilabel, regression or anomaly-detection.")
    ] = CLASSIFICATION.name,
    window: Annotated[
        int,
        typer.Option(metavar="ROWS", min=0, help="Rows of a sample, in the order of time. Default: one, as features."),
    ] = 0,
    horizon: Annotated[
        int, typer.Option(metavar="ROWS", min=0, help="Forecast the targets of so many rows after a window.")
    ] = 0,
    group: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column that tells series apart; no window crosses them.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Describe the columns of tables from an example, for `bundle --columns`.

    The description holds the order of the columns, their categories, the target, and the mean and
    standard deviation of numeric columns and of values. It may be edited. A bundle contains it, so that all devices
    encode their rows in the same way.

    Example: moonfed-export columns customers.csv --target churn --ignore id --output columns.json
    """
    from moonfed.export.table_description import write_description
    from moonfed.export.table_inference import ColumnChoices, infer_description

    choices = ColumnChoices(
        targets=targets or (),
        ignored=ignored or (),
        categorical=categorical or (),
        numeric=numeric or (),
        task=task,
        window=window,
        horizon=horizon,
        group=group,
    )
    description = infer_description(table, choices)
    write_description(output, description)
    if as_json:
        widths = {"columns": len(description.table.columns), "features": description.table.width}
        print_json({"output": str(output), "task": task, "target": description.target.to_document(), **widths})
    else:
        print(describe_columns(description))


def describe_columns(description: TableDescription) -> str:
    """Format a line for each column."""
    rows = [(column.name, _kind(column, description.scales.get(column.name))) for column in description.table.columns]
    rows += _targets(description)
    if description.window:
        within = f", within each {description.table.group}" if description.table.group else ""
        rows.append(("samples", f"windows of {description.window} rows{within}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _targets(description: TableDescription) -> list[tuple[str, str]]:
    target = description.target
    after = f", the next {target.shape[0]} rows" if target.kind == "values" and len(target.shape) == 2 else ""
    texts = {
        "class": [f"target, classes {_shown(target.names)}"],
        "labels": ["target, 0 or 1"] * len(target.names),
        "values": [
            f"target, mean {mean:g}, standard deviation {deviation:g}{after}"
            for mean, deviation in zip(target.mean, target.deviation, strict=True)
        ],
    }.get(target.kind, ["says which rows are anomalous, for evaluation"])
    return list(zip(description.table.targets, texts, strict=False))


def _kind(column: Column, scale: Scale | None) -> str:
    if scale is None:
        return f"categories {_shown(column.categories)}"
    return f"numeric, mean {scale.mean:g}, standard deviation {scale.deviation:g}"


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)})" if len(names) > SHOWN else "")
