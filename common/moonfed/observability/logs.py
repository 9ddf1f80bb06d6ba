"""Logs of the long-running programs: text for people, or one JSON object per line for collectors.

A line of JSON names run, round, attempt and device in fields of their own. They come from the context that `fields`
opens, from the line's arguments that have `log_fields`, such as an assignment, and from `extra`; the last one wins.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from types import MappingProxyType, TracebackType

from moonfed.errors import MoonfedError
from moonfed.printable import printable
from moonfed.validate import require_one_of

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
TEXT = "%(asctime)s %(levelname)s %(message)s"
MESSAGE = "%(message)s"  # for programs whose text is for a terminal
FIELDS = ("run", "round", "attempt", "device")
OWN = "moonfed"  # our loggers; those of libraries never log at debug, where some reveal credentials
_REPORTED = ("docs", "exit_code")
_context: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default=MappingProxyType({}))
_process: dict[str, object] = {}  # fields of every line of this process


def require_log_options(log_format: str, log_level: str) -> None:
    """Raise InvalidInput for an unknown format or level."""
    require_one_of("log-format", log_format, FORMATS)
    require_one_of("log-level", log_level, LEVELS)


def configure_logs(log_format: str, log_level: str, text: logging.Formatter | str = TEXT) -> None:
    """Log to standard error; `text`: the format of lines of text. Raises InvalidInput.

    In JSON, warnings of Python and errors that nobody caught are lines of the log, too.
    """
    require_log_options(log_format, log_level)
    level = getattr(logging, log_level.upper())
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
    else:
        handler.setFormatter(logging.Formatter(text) if isinstance(text, str) else text)
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    logging.getLogger(OWN).setLevel(level)


@contextmanager
def fields(**values: object) -> Iterator[None]:
    """Add fields to the lines that the body logs, in this thread or task, and in tasks that it starts."""
    token = _context.set({**_context.get(), **values})
    try:
        yield
    finally:
        _context.reset(token)


def set_process_fields(**values: object) -> None:
    """Add fields to every line that this process logs from now on."""
    _process.update(values)


def in_json() -> bool:
    """Return True if this program logs JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def report(program: str, sentence: str, *, level: int = logging.ERROR, **extra: object) -> None:
    """Write a program's own sentence to standard error: `program: sentence`, or a line of JSON in JSON logs."""
    if in_json():
        logging.getLogger(program).log(level, "%s", sentence, extra=extra)
    else:
        print(f"{program}: {sentence}", file=sys.stderr, flush=True)


def last_line(program: str, sentence: str) -> bytes:
    """Return a line that a signal handler can write, without the locks of `report`."""
    if not in_json():
        return f"{program}: {sentence}\n".encode()
    record = logging.LogRecord(program, logging.INFO, "", 0, sentence, None, None)
    return f"{JsonFormatter().format(record)}\n".encode()


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON in ASCII, whatever text it contains."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record."""
        line: dict[str, object] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
            **_found_fields(record),
        }
        if record.exc_info and record.exc_info[0]:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def rfc3339(seconds: float) -> str:
    """Return a time, in seconds since the epoch, such as 2026-11-23T07:36:00.125Z."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _found_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return a record's fields, from the most general source to the line's own."""
    found: dict[str, object] = {**_process, **_context.get()}
    for argument in record.args if isinstance(record.args, tuple) else ():
        found.update(getattr(argument, "log_fields", {}))
        if isinstance(argument, MoonfedError):
            found["docs"] = argument.docs
    found.update({name: vars(record)[name] for name in (*FIELDS, *_REPORTED) if name in vars(record)})
    return {name: printable(value) if isinstance(value, str) else value for name, value in found.items()}


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(OWN).critical("ended unexpectedly: %s", kind.__name__, exc_info=(kind, error, trace))
