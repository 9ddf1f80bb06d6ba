"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.control.run_settings import RUN_SETTINGS

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="Print everything. Default: at most 40 lines, cut to the terminal's width.")
]
AllowEmptyOption = Annotated[
    bool, typer.Option("--allow-empty", help="Accept a selection that no known device matches yet.")
]
KeepLastOption = Annotated[int, typer.Option(help=RUN_SETTINGS["keep_last"].about)]
KeepEveryOption = Annotated[int, typer.Option(metavar="N", help=RUN_SETTINGS["keep_every"].about)]
