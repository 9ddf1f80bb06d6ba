"""Inspection of a plan's code: nothing in it may run while it is loaded, or exhaust the parser.

Torch runs three things when it loads a script: `__setstate__` methods, default values of parameters, and values of
class constants. The first is rejected, and the others must be literals. The parser recurses, so nesting is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from moonfed.errors import UnsafePlan

MAXIMUM_NESTING = 60  # open brackets
MAXIMUM_INDENTATION = 120  # columns
MAXIMUM_OPERATORS = 100  # between two commas

STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_FORBIDDEN = re.compile(r"__(?:setstate|getstate|reduce|reduce_ex|del)__|torch\.classes|\belif\b|\blambda\b")
_BRACKET = re.compile(r"[][(){}]")
_OPERATOR = re.compile(r"[-+*/%<>=!&|^~.@]|\b(?:and|or|not|in|is|if|else)\b")
_DEFINITION = re.compile(r"(?:class \w+(?:\(\w*\))?:|def \w+\()")
_DEF = re.compile(r"^\s*def (\w+)\(", re.MULTILINE)
_MEMBER = re.compile(
    r"""(?:__(?:parameters|buffers)__ \s=\s \[ (?:"",?\s?)* \]   # names
    | __annotations__ \s=\s \[\]
    | __annotations__\[""\] \s=\s [\w.\[\], ]+                   # a type
    | \w+ \s?:\s [\w.\[\], ]+                                    # an attribute's type
    | \w+ (?:\s?:\s [\w.\[\], ]+)? \s=\s (?P<value>.+)           # a constant
    | def \s \w+\( .*
    | @\w+
    )""",
    re.VERBOSE,
)
_LITERAL = re.compile(r'(?:""|None|True|False|inf|nan|[-+]?[0-9][0-9.eE+\-]*j?|[\[\](),\s-])*')


def require_safe_source(name: str, text: str) -> None:
    """Raise UnsafePlan naming what is wrong with the code file of that name."""
    code = STRING.sub('""', text)
    found = _FORBIDDEN.search(code)
    if found:
        raise UnsafePlan(f"the plan's {name} has {found[0]!r}, which is not allowed in plans")
    if code.count('"') % 2:
        raise UnsafePlan(f"the plan's {name} has a quote that is not closed")
    for character, meaning in (("#", "a comment"), ('"""', "a docstring"), ("'", "a quote"), (";", "a semicolon")):
        if character in code:
            raise UnsafePlan(f"the plan's {name} has {meaning}, which no compiler of plans writes")
    _require_shallow(name, code)
    for default in _defaults(code):
        if not _LITERAL.fullmatch(default):
            raise UnsafePlan(f"the plan's {name} has a default value {default[:60]!a}; it must be a literal")
    for value in _constants(name, code):
        if not _LITERAL.fullmatch(value):
            raise UnsafePlan(f"the plan's {name} has a constant {value[:60]!a}; it must be a literal")


def _require_shallow(name: str, code: str) -> None:
    depth = 0
    for line in code.split("\n"):
        if len(line) - len(line.lstrip()) > MAXIMUM_INDENTATION:
            raise UnsafePlan(f"the plan's {name} is indented by more than {MAXIMUM_INDENTATION} columns")
        for bracket in _BRACKET.findall(line):
            if bracket in "([{":
                depth += 1
                if depth > MAXIMUM_NESTING:
                    raise UnsafePlan(f"the plan's {name} has more than {MAXIMUM_NESTING} open brackets")
            else:
                depth -= 1
    if depth:
        raise UnsafePlan(f"the plan's {name} has brackets that do not match")
    for line in logical_lines(code):
        if any(len(_OPERATOR.findall(part)) > MAXIMUM_OPERATORS for part in line.split(",")):
            raise UnsafePlan(f"the plan's {name} has an expression of more than {MAXIMUM_OPERATORS} operators")


def _defaults(code: str) -> Iterator[str]:
    """Yield the default values of all parameters of all functions."""
    for found in _DEF.finditer(code):
        for parameter in _parameters(code, found.end()):
            _, equals, default = parameter.partition("=")
            if equals:
                yield default.strip()


def _parameters(code: str, start: int) -> Iterator[str]:
    """Yield the parameters of a function whose opening bracket ends at `start`."""
    depth, begin = 1, start
    for position in range(start, len(code)):
        character = code[position]
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 or (depth == 1 and character == ","):
            yield code[begin:position]
            begin = position + 1
        if depth == 0:
            return


def _constants(name: str, code: str) -> Iterator[str]:
    """Yield the values of class constants; raise for a statement that no class or module of a plan has."""
    in_class = False
    for line in logical_lines(code):
        indentation = len(line) - len(line.lstrip(" "))
        if indentation == 0 and line:
            if not _DEFINITION.match(line):
                raise UnsafePlan(f"the plan's {name} has {line[:60]!a} outside classes and functions")
            in_class = line.startswith("class ")
        elif in_class and indentation <= 2 and line.strip():
            member = _MEMBER.fullmatch(line.strip())
            if indentation != 2 or not member:
                raise UnsafePlan(f"the plan's {name} has {line.strip()[:60]!a} in a class, which is not allowed")
            if member["value"] is not None and not line.strip().startswith("def "):
                yield member["value"]


def logical_lines(code: str) -> Iterator[str]:
    """Yield lines, each with the lines that continue it within brackets."""
    depth, parts = 0, []
    for line in code.split("\n"):
        parts.append(line)
        depth += line.count("(") + line.count("[") + line.count("{")
        depth -= line.count(")") + line.count("]") + line.count("}")
        if depth <= 0:
            yield " ".join(parts) if len(parts) > 1 else line
            depth, parts = 0, []
