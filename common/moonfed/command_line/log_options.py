"""The options of a long-running program's log and traces, for typer."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.observability.logs import FORMATS, LEVELS
from moonfed.observability.tracing import ENDPOINT_VARIABLE

LogFormatOption = Annotated[
    str,
    typer.Option("--log-format", metavar="|".join(FORMATS), help="Format of the log on standard error."),
]
LogLevelOption = Annotated[
    str, typer.Option("--log-level", metavar="|".join(LEVELS), help="Lowest severity that is logged.")
]
OtlpOption = Annotated[
    str,
    typer.Option(
        "--otlp-endpoint",
        metavar="URL",
        envvar=ENDPOINT_VARIABLE,
        help="Collector of traces (OTLP over gRPC), such as http://localhost:4317. Default: no traces.",
        show_default=False,
    ),
]
