"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="Print everything. Default: at most 40 lines, cut to the terminal's width.")
]
AllowEmptyOption = Annotated[
    bool, typer.Option("--allow-empty", help="Accept a selection that no known device matches yet.")
]
KeepLastOption = Annotated[int, typer.Option(help="Number of newest global models to keep.")]
KeepEveryOption = Annotated[int, typer.Option(help="Also keep every N-th round's model; 0: none.")]
