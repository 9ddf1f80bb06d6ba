"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

KeepLastOption = Annotated[int, typer.Option(help="Number of newest global models to keep.")]
KeepEveryOption = Annotated[int, typer.Option(help="Also keep every N-th round's model; 0: none.")]
