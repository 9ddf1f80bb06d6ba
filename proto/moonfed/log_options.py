"""The options of a long-running program's log, for typer."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.logs import FORMATS, LEVELS

LogFormatOption = Annotated[
    str,
    typer.Option("--log-format", metavar="|".join(FORMATS), help="Format of the log on standard error."),
]
LogLevelOption = Annotated[
    str, typer.Option("--log-level", metavar="|".join(LEVELS), help="Least severe lines that are logged.")
]
