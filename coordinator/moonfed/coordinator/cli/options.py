"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

KeepLastOption = Annotated[int, typer.Option(help="Newest global models that are kept.")]
KeepEveryOption = Annotated[int, typer.Option(help="Also that of every so-many-th round; 0: no others.")]
