"""Inspection of a plan's code: nothing in it may run while it is loaded, or exhaust the parser.

Torch runs two things when it loads a script: `__setstate__` methods, and the default values and class constants, which
it evaluates; while it compiles a function, it also computes operators whose arguments are constants. So a file is
accepted only if each line is one that torch's printer writes (see `grammar`), in a structure that it writes; the values
are literals, the operators are those that a plan may use, and no name is defined twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from moonfed.errors import UnsafePlan
from moonfed.inspection import grammar
from moonfed.inspection.grammar import NotPrinted
from moonfed.inspection.operator_list import allowed_names, require_none

MAXIMUM_DEPTH = 60  # blocks within blocks
LINES_PER_CHECK = 1000  # of the clock

_FORBIDDEN = re.compile(r"(?<!\w)(?:__(?:setstate|getstate|reduce|reduce_ex|del)__|__torch__\.torch\.classes)(?!\w)")
_OPERATOR = re.compile(r"(?<![\w.])(?:torch(?:\.autograd)?|ops\.(\w+))\.(\w+)\(", re.ASCII)
_METHOD = re.compile(r"\)\.(\w+)\(", re.ASCII)
_CLASS = re.compile(r"class ([A-Za-z_]\w*)(?:\((Module|NamedTuple|Interface|ModuleInterface|Enum)\))?:", re.ASCII)
_DEFINITION = re.compile(r" *def ([A-Za-z_]\w*)\(", re.ASCII)
_PARAMETER = re.compile(r"(?:\(|\n    )(\w+)[:,)]", re.ASCII)
_NAMES = re.compile(r'(__parameters__|__buffers__|__forward_hooks__|__forward_pre_hooks__) = \[(?:", )*\]')
_ODD = re.compile(r'__annotations__\["\] = (.+)')
_ODD_NAME = re.compile(r'__annotations__\["([^"\\]+)"\] = ')
_MEMBER = re.compile(r"([A-Za-z_]\w*) : (.+)", re.ASCII)
_ENUMERATED = re.compile(r'([A-Za-z_]\w*) = ("|-?[0-9]{1,20}|-?[0-9.e+-]{1,40})', re.ASCII)
_OPENS = frozenset({"if", "else", "while", "for", "with"})
FUNCTION = ""  # the kind of a block that is a function's


@dataclass(frozen=True, slots=True)
class Code:
    """Names that the code files of a plan define and use."""

    classes: dict[str, dict[str, str]] = field(default_factory=dict)  # the types of attributes, by class and attribute
    defined: set[str] = field(default_factory=set)  # methods
    called: dict[str, str] = field(default_factory=dict)  # methods, and the file of one call
    operators: set[str] = field(default_factory=set)  # without overloads: `aten::add`


def read_code(files: Mapping[str, str], require_time: Callable[[], None]) -> Code:
    """Return what the files define, by name in the archive; raise UnsafePlan for anything that no printer writes.

    Operators that no plan may use are rejected, too. `require_time` raises if the inspection takes too long.
    """
    code = Code()
    for name, text in files.items():
        _read_file(name, text, require_time, code)
    require_none(code.operators - allowed_names())
    for method, name in code.called.items():
        if method not in code.defined:
            raise UnsafePlan(f"the plan's {name} calls the method {method[:100]!a}, which its code does not define")
    return code


def _read_file(name: str, text: str, require_time: Callable[[], None], code: Code) -> None:
    try:
        _File(name, text, require_time, code).read()
    except NotPrinted as error:
        raise UnsafePlan(f"the plan's {name} has {error}") from error


class _File:
    """A reader of one code file, line by line."""

    def __init__(self, name: str, text: str, require_time: Callable[[], None], code: Code) -> None:
        plain = grammar.without_strings(text)
        if plain and not plain.endswith("\n"):
            raise NotPrinted("no line feed at its end")
        self._raw, self._plain = text.split("\n")[:-1], plain.split("\n")[:-1]
        self._shapes = grammar.shapes(plain).split("\n")[:-1]
        self._module = name.removeprefix("code/").removesuffix(".py").replace("/", ".")
        self._name, self._text = name, plain
        self._require_time, self._code, self._at = require_time, code, 0

    def read(self) -> None:
        """Read the file's functions and classes into the code."""
        self._uses()
        names = set[str]()
        while self._at < len(self._plain):
            line = self._plain[self._at]
            if found := _CLASS.fullmatch(line):
                self._require_new(names, found[1])
                self._advance()
                self._class(found[1], found[2] or "")
            else:
                self._require_new(names, self._function(0))

    def _uses(self) -> None:
        if found := _FORBIDDEN.search(self._text):
            raise NotPrinted(f"{found[0]!r}, which is not allowed in plans")
        self._code.operators.update(f"{space or 'aten'}::{name}" for space, name in _OPERATOR.findall(self._text))
        self._code.called.update(dict.fromkeys(_METHOD.findall(self._text), self._name))

    def _class(self, name: str, base: str) -> None:
        attributes: dict[str, str] = {}
        members = set[str]()
        if base in ("", "Module"):  # others have no objects with attributes
            self._code.classes[f"{self._module}.{name}"] = attributes
        while self._level() == 1:
            line = self._shapes[self._at][2:]
            if base.endswith("Interface"):
                self._declaration(members)
            elif line.startswith("def ") and base in ("", "Module"):
                method = self._function(1)
                self._require_new(members, method)
                self._code.defined.add(method)
            elif base == "Enum":
                self._require_new(members, self._matched(_ENUMERATED)[1])
                self._advance()
            else:
                self._member(members, attributes, base)
                self._advance()

    def _member(self, members: set[str], attributes: dict[str, str], base: str) -> None:
        """Read an attribute, a constant or a list of names."""
        plain = self._plain[self._at][2:]
        if base == "Module" and (found := _NAMES.fullmatch(plain)):
            self._require_new(members, found[1])
        elif base != "NamedTuple" and (found := _ODD.fullmatch(plain)):
            odd = _ODD_NAME.match(self._raw[self._at], 2)
            if not odd:
                self._fail()
            self._require_new(members, odd[1])
            attributes[odd[1]] = found[1]
            self._require(grammar.require_type, grammar.shapes(found[1]))
        elif plain != "__annotations__ = []":
            found = self._matched(_MEMBER)
            self._require_new(members, found[1])
            shape = self._shapes[self._at].partition(" : ")[2]
            if shape.startswith("Final["):
                self._require(grammar.require_constant, shape)
            else:
                attributes[found[1]] = found[2]
                self._require(grammar.require_type, shape)

    def _declaration(self, members: set[str]) -> None:
        """Read a method of an interface."""
        name = self._matched(_DEFINITION, whole=False)[1]
        self._require_new(members, name)
        self._code.defined.add(name)
        self._require(grammar.require_declaration, self._shapes[self._at][2:])
        self._advance()
        if self._at == len(self._plain) or self._plain[self._at] != "    pass":
            self._fail()
        self._advance()

    def _function(self, level: int) -> str:
        """Read a function whose head is at a level; return its name."""
        start = self._at
        indentation = "  " * level
        found = _DEFINITION.match(self._plain[start])
        if not found or not self._plain[start].startswith(f"{indentation}def "):
            self._fail()
        while self._plain[self._at].endswith(","):
            self._advance()
            if self._at == len(self._plain) or not self._plain[self._at].startswith("    "):
                self._fail()
        head = slice(start, self._at + 1)
        self._require(grammar.require_function, "\n".join(self._shapes[head]).removeprefix(indentation))
        parameters = set[str]()
        for parameter in _PARAMETER.findall("\n".join(self._plain[head])):
            self._require_new(parameters, parameter)
        self._advance()
        self._body(level + 1)
        return found[1]

    def _body(self, base: int) -> None:
        """Read the statements of a function, and of the blocks in it, which the printer indents by two columns each."""
        blocks = [FUNCTION]
        opened, word = True, ""
        while (level := self._level()) >= base:
            depth = level - base + 1
            if depth > len(blocks) or (opened and depth < len(blocks)):
                self._fail()
            closed = blocks[depth:]
            del blocks[depth:]
            word = self._statement()
            self._require_pair(closed, word)
            opened = word in _OPENS
            if opened:
                blocks.append(word)
                if len(blocks) > MAXIMUM_DEPTH:
                    raise NotPrinted(f"more than {MAXIMUM_DEPTH} blocks within each other")
            elif word == "return":
                break
        if word != "return" or len(blocks) > 1 or self._level() >= base:
            self._fail(-1)

    def _require_pair(self, closed: Sequence[str], word: str) -> None:
        """Each `if` has its `else`, and each `else` its `if`."""
        if (word == "else") != (closed[:1] == ["if"]) or "if" in closed[1:]:
            self._fail(-1)

    def _statement(self) -> str:
        word = self._require(grammar.statement, self._shapes[self._at].lstrip(" "))
        self._advance()
        return word

    def _level(self) -> int:
        """Return the indentation of the current line, in steps of two columns; -1 at the end."""
        if self._at == len(self._shapes):
            return -1
        line = self._shapes[self._at]
        columns = len(line) - len(line.lstrip(" "))
        if columns % 2 or columns == len(line):
            self._fail()
        return columns // 2

    def _advance(self) -> None:
        self._at += 1
        if self._at % LINES_PER_CHECK == 0:
            self._require_time()

    def _require(self, production: Callable[[str], str | None], shape: str) -> str:
        """Require a shape to match a production; return what that returns."""
        try:
            return production(shape) or ""
        except NotPrinted as error:
            raise NotPrinted(f"{error} in line {self._at + 1}: {self._shown(self._at)}") from error

    def _matched(self, pattern: re.Pattern[str], *, whole: bool = True) -> re.Match[str]:
        line = self._plain[self._at][2:]
        found = pattern.fullmatch(line) if whole else pattern.match(line)
        if not found:
            self._fail()
        return found

    def _require_new(self, names: set[str], name: str) -> None:
        if name in names:
            raise NotPrinted(f"{name[:100]!a} twice, the second time before line {self._at + 2}")
        names.add(name)

    def _fail(self, offset: int = 0) -> NoReturn:
        at = min(max(self._at + offset, 0), len(self._raw) - 1)
        raise NotPrinted(f"a line that torch's printer does not write in line {at + 1}: {self._shown(at)}")

    def _shown(self, at: int) -> str:
        return ascii(self._raw[at].strip()[:60])
