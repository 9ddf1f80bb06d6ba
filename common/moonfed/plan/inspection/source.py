"""Inspection of a plan's code: nothing in it may run while it is loaded, or exhaust the parser.

Torch runs two things when it loads a script: `__setstate__` methods, and the default values and class constants, which
it evaluates; while it compiles a function, it also computes operators whose arguments are constants. So a file is
accepted only if each line is one that torch's printer writes (see `grammar`), in a structure that it writes; the values
are literals, the operators are those that a plan may use, and no name is defined twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NoReturn

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection import grammar
from moonfed.plan.inspection.grammar import NotPrinted
from moonfed.plan.inspection.operator_list import allowed_names, require_none

MAXIMUM_DEPTH = 60  # blocks within blocks
LINES_PER_CHECK = 1000  # of the clock
MAXIMUM_CHAIN = 600  # classes, functions and methods that need each other; torch defines them recursively

# Operators on numbers and strings, which torch executes while it compiles, and finds as methods of a constant.
METHODS_OF_CONSTANTS = {
    "Complex", "__lshift__", "__round_to_zero_floordiv", "__rshift__", "__xor__", "_cufft_get_plan_cache_max_size",
    "_cufft_get_plan_cache_size", "_unwrap_optional", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh",
    "bin", "can_cast", "capitalize", "center", "chr", "copysign", "cosh", "count", "degrees", "dequantize",
    "divmod", "endswith", "erfc", "expandtabs", "fabs", "factorial", "find", "frexp", "gamma", "gcd",
    "get_autocast_dtype", "has_torch_function", "hash", "hex", "is_autocast_enabled", "isalnum", "isalpha",
    "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
    "ldexp", "lgamma", "ljust", "log10", "lower", "lstrip", "mathremainder", "modf", "oct", "ord", "partition",
    "percentFormat", "polar", "promote_types", "radians", "replace", "result_type", "rfind", "rindex", "rjust",
    "rpartition", "rstrip", "sinh", "startswith", "strip", "swapcase", "title", "upper", "zfill",
}  # fmt: skip
_FORBIDDEN = re.compile(r"(?<!\w)(?:__(?:setstate|getstate|reduce|reduce_ex|del)__|__torch__\.torch\.classes)(?!\w)")
_OPERATOR = re.compile(r"(?<![\w.])(?:torch(?:\.autograd)?|ops\.(\w+))\.(\w+)\(", re.ASCII)
_METHOD = re.compile(r"\)\.(\w+)\(", re.ASCII)
_CALLED = re.compile(r"(?<![\w.])(_[0-9]*)\(", re.ASCII)
_NOT_CALLED = re.compile(r"(?<![\w.])(_[0-9]*)(?![\w(])", re.ASCII)
_ALIAS = re.compile(r"^ *(_[0-9]*) = __torch__[\w.]+$", re.ASCII | re.MULTILINE)
_QUALIFIED = re.compile(r"(?<![\w.])__torch__[\w.]+", re.ASCII)
_CLASS = re.compile(r"class ([A-Za-z_]\w*)(?:\((Module|NamedTuple|Interface|ModuleInterface|Enum)\))?:", re.ASCII)
_DEFINITION = re.compile(r" *def ([A-Za-z_]\w*)\(", re.ASCII)
_PARAMETER = re.compile(r"(?:\(|\n    )([A-Za-z_]\w*)[:,)]", re.ASCII)
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
    needed: dict[str, set[str]] = field(default_factory=dict)  # by class or function: the qualified names in it
    sizes: dict[str, int] = field(default_factory=dict)  # by class or function: 1, and the number of its methods


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
        if method in METHODS_OF_CONSTANTS:
            raise UnsafePlan(
                f"the plan's {name} calls the method {method[:100]!a}, which torch's constants have",
                field="method",
                value=method[:100],
            )
    if longest_chain(code.needed, code.sizes) > MAXIMUM_CHAIN:
        raise UnsafePlan(
            f"the plan has over {MAXIMUM_CHAIN} classes, functions and methods that need each other",
            field="chain",
            value=MAXIMUM_CHAIN,
        )
    return code


def longest_chain(needed: Mapping[str, Collection[str]], sizes: Mapping[str, int]) -> int:
    """Return the size of the largest chain of definitions each of which needs the next; a cycle counts as a whole.

    This is Tarjan's algorithm, which finds the cycles from the last to the first; it does not recurse.
    """
    numbers, lowest, chains = dict[str, int](), dict[str, int](), dict[str, int]()  # `chains`: from complete ones
    path = list[str]()
    for root in needed:
        pending = [] if root in numbers else [(root, iter(needed[root]))]
        while pending:
            name, others = pending[-1]
            if name not in numbers:
                numbers[name] = lowest[name] = len(numbers)
                path.append(name)
            for other in others:
                if other in needed and other not in numbers:
                    pending.append((other, iter(needed[other])))
                    break
                if other in needed and other not in chains:
                    lowest[name] = min(lowest[name], numbers[other])
            else:
                pending.pop()
                if pending:
                    lowest[pending[-1][0]] = min(lowest[pending[-1][0]], lowest[name])
                if lowest[name] == numbers[name]:
                    cycle = [path.pop()]
                    while cycle[-1] != name:
                        cycle.append(path.pop())
                    below = max((chains.get(each, 0) for member in cycle for each in needed[member]), default=0)
                    chains.update(dict.fromkeys(cycle, below + sum(sizes[member] for member in cycle)))
    return max(chains.values(), default=0)


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
        self._require_time = require_time
        self._code = code
        self._at = 0

    def read(self) -> None:
        """Read the file's functions and classes into the code."""
        self._uses()
        names = set[str]()
        while self._at < len(self._plain):
            start = self._at
            if found := _CLASS.fullmatch(self._plain[start]):
                name = found[1]
                self._advance()
                self._class(name, found[2] or "")
            else:
                name = self._function(0)
            self._require_new(names, name)
            self._needs(f"{self._module}.{name}", self._plain[start : self._at])

    def _needs(self, name: str, lines: Sequence[str]) -> None:
        """Add the size of a function or class, and what it needs."""
        needed = set(_QUALIFIED.findall("\n".join(lines)))
        prefixes = {prefix for each in needed for prefix in accumulate(each.split("."), "{}.{}".format)}
        self._code.sizes[name] = 1 + sum(bool(_DEFINITION.match(line)) for line in lines[1:])
        self._code.needed[name] = prefixes - {name}

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
        self._require_aliases("\n".join(self._plain[start : self._at]))
        return found[1]

    def _require_aliases(self, text: str) -> None:
        """Require what a function calls by another name to be a function of the plan, and nothing else."""
        called = set(_CALLED.findall(text))
        aliases, uses = Counter(_ALIAS.findall(text)), Counter(_NOT_CALLED.findall(text))
        if wrong := [name for name in called if not 0 < uses[name] == aliases[name]]:
            raise NotPrinted(f"a call of {min(wrong)[:100]!a}, which is not always a function of the plan")

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
