"""The grammar of the source in a plan: what torch's own printer writes, and nothing else.

Torch evaluates default values and class constants while it loads a script, so a plan's source is accepted only if each
of its lines matches a production below. The productions are those of `torch/csrc/jit/serialization/python_print.cpp`,
with the functions that write them in brackets; `printValueList` is `e, e`, and `e` is an expression:

    class       class NAME: | class NAME(BASE):                                       [printClass, printNamedType]
    member      __parameters__ = ["NAME", ] | __buffers__ = […] | __annotations__ = [] | __annotations__["NAME"] = type
                | NAME : type | NAME : Final[type] = literal | NAME = literal, of an Enum       [printClass]
    function    def NAME(NAME: type=literal,⏎    NAME: type) -> type:                  [printFunction]
    statement   return e | pass | if e: | else: | while NAME: | for NAME in range(e): | with e: | with e as NAME:
                | NAME, NAME = e, e | NAME, NAME = e | NAME, NAME, = e | NAME: type = e | NAME : type = e
                | e.NAME = e | e                                                         [printNode]
    e           NAME | QUALIFIED | literal | CONSTANTS.cN | e.NAME | e[e] | (e)[N:N] | (e).NAME(e, ) | FUNCTION(e, )
                | torch.NAME(e, NAME=e) | ops.NAME.NAME(e) | QUALIFIED(e) | QUALIFIED.__new__(QUALIFIED) | [e, e]
                | (e, e) | (e,) | {e: e} | annotate(type, e) | annotate(type, e.tolist()) | unchecked_cast(type, e)
                | uninitialized(type) | isinstance(e, type) | getattr(e, "NAME") | int(e) …              [printRHS]
    literal     a number | a string | None | True | False | inf | nan | [literal] | (literal,) | {literal: literal}
                | annotate(type, literal)                                             [printConstant]
    type        NAME | QUALIFIED | NAME[type, type]                                    [Type::annotation_str]

The printer separates by exactly one space, and writes no other blanks, no comments and no operators. A line is first
reduced to its shape, in which each name, number and string is one character; plans have few shapes, so each is parsed
once. Tokens, lines, nesting and chains are bounded, because torch's parser recurses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

MAXIMUM_NESTING = 60  # brackets within brackets
MAXIMUM_CHAIN = 100  # attributes and indices of one expression
MAXIMUM_LINE = 100_000  # characters
MAXIMUM_NAME = 255  # characters of an identifier
MAXIMUM_PARTS = 30  # of a qualified name
SHAPES_KEPT = 4096

# Shapes: the characters that stand for tokens; all others stand for themselves.
NAME, FUNCTION, QUALIFIED, NUMBER, STRING, TO_LIST = "n", "@", "$", "0", '"', "#"
_KEYWORDS = (
    *("class", "def", "if", "elif", "else", "for", "in", "while", "with", "as", "pass", "return"),
    *("not", "and", "or", "is", "lambda", "global", "del", "import", "try", "raise", "assert"),
    *("None", "True", "False", "torch", "ops", "CONSTANTS", "Final"),
)
_BUILTINS = ("int", "float", "bool", "str", "sorted", "print")
_WORDS = ("annotate", "unchecked_cast", "isinstance", "uninitialized", "getattr", "range", *_BUILTINS)

STRINGS = re.compile(r"""
    "(?: [^"\\\x00-\x1f\x7f-\x9f]
       | \\ (?: [\\'"abfnrtv] | [0-3][0-7]{2} )
    )*"
    """, re.VERBOSE)  # fmt: skip
_STRAY = re.compile(r'[^A-Za-z0-9_.,:=()\[\]{}> \n"+-]')
_QUALIFIED = re.compile(rf"(?<![\w.])__torch__(?:\.(?!__new__\b)[A-Za-z_]\w*){{1,{MAXIMUM_PARTS}}}", re.ASCII)
_NUMBER = re.compile(
    r"(?<![\w.])-?(?: [0-9]{1,20} (?: \.[0-9]{0,20} )? (?: e[-+][0-9]{1,4} )? | inf | nan )(?![\w.])",
    re.ASCII | re.VERBOSE,
)
_FUNCTION = re.compile(r"(?<![\w.])_[0-9]*(?=\()", re.ASCII)
_IDENTIFIER = re.compile(
    rf"(?<!\w)(?!__new__\b)(?!(?<!\.)(?:(?:{'|'.join(_KEYWORDS)})(?!\w)|(?:{'|'.join(_WORDS)})\())"
    rf"[A-Za-z_]\w{{0,{MAXIMUM_NAME - 1}}}(?!\w)",
    re.ASCII,
)
_GRADIENT = re.compile(r"\btorch\.autograd\.(?:grad|backward)\(")
_TO_LIST = re.compile(r"\.tolist\(\)(?=\))")
_CONSTANT = re.compile(r"\bCONSTANTS\.c[0-9]{1,9}(?!\w)", re.ASCII)


class NotPrinted(Exception):
    """A text that torch's printer does not write; its message says what is wrong."""


def without_strings(text: str) -> str:
    """Return the text with a quote for each string; NotPrinted for characters that the printer does not write."""
    if max(map(len, text.split("\n"))) > MAXIMUM_LINE:
        raise NotPrinted(f"a line of over {MAXIMUM_LINE:,} characters")
    code, strings = STRINGS.subn(STRING, text)
    if code.count(STRING) != strings:
        raise NotPrinted("a quote that is not closed, or a character in a string that must be escaped")
    if stray := _STRAY.search(code):
        raise NotPrinted(f"the character {stray[0]!a} outside a string")
    return code


def shapes(code: str) -> str:
    """Return the shapes of lines without strings."""
    for pattern, symbol in (
        (_GRADIENT, "torch.n("),
        (_TO_LIST, TO_LIST),
        (_CONSTANT, NAME),
        (_QUALIFIED, QUALIFIED),
        (_NUMBER, NUMBER),
        (_FUNCTION, FUNCTION),
        (_IDENTIFIER, NAME),
    ):
        code = pattern.sub(symbol, code)
    return code


@lru_cache(SHAPES_KEPT)
def statement(shape: str) -> str:
    """Return a statement's first word if it is one of `return if else while for with`, otherwise ""; NotPrinted."""
    return _Shape(shape).whole(_Shape.statement)


@lru_cache(SHAPES_KEPT)
def require_function(shape: str) -> None:
    """Raise NotPrinted unless the shape is the head of a function, whose parameters are on lines of their own."""
    _Shape(shape).whole(_Shape.function)


@lru_cache(SHAPES_KEPT)
def require_declaration(shape: str) -> None:
    """Raise NotPrinted unless the shape is the head of an interface's method."""
    _Shape(shape).whole(_Shape.declaration)


@lru_cache(SHAPES_KEPT)
def require_type(shape: str) -> None:
    """Raise NotPrinted unless the shape is a type."""
    _Shape(shape).whole(_Shape.type_)


@lru_cache(SHAPES_KEPT)
def require_constant(shape: str) -> None:
    """Raise NotPrinted unless the shape is `Final[type] = literal`."""
    _Shape(shape).whole(_Shape.constant)


class _Shape:
    """A reader of one shape; each method reads its production at the current position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self, production: Callable[[_Shape], str | None]) -> str:
        """Read a production that ends with the text; return what it returns."""
        found = production(self)
        if self._at < len(self._text):
            self._fail()
        return found or ""

    def statement(self) -> str:
        """Read a statement; return its first word if that is a keyword."""
        for word in ("return", "if", "while", "for", "with"):
            if self._read(f"{word} "):
                getattr(self, f"_{word}")()
                return word
        if self._read("else:"):
            return "else"
        if not self._read("pass"):
            self._assignment()
        return ""

    def function(self) -> None:
        """Read the head of a function."""
        self._require("def n(")
        if not self._read(")"):
            self._parameter()
            while self._read(",\n    "):
                self._parameter()
            self._require(")")
        self._result()

    def declaration(self) -> None:
        """Read the head of an interface's method."""
        self._require("def n(n")
        while self._read(", n: "):
            self.type_()
        self._require(")")
        self._result()

    def constant(self) -> None:
        """Read the type and value of a class constant."""
        self._require("Final[")
        self.type_()
        self._require("] = ")
        self.literal()

    def type_(self) -> None:
        """Read a type."""
        self._enter()
        if not self._read(QUALIFIED):
            self._require(NAME)
            if self._read("[") and not self._read("()]"):
                self._list(self.type_, "]")
        self._depth -= 1

    def literal(self) -> None:
        """Read a value that can be computed without running anything."""
        self._enter()
        if self._read("annotate("):
            self.type_()
            self._require(", ")
            self.literal()
            self._require(")")
        elif self._read("["):
            self._list(self.literal, "]", empty=True)
        elif self._read("{"):
            self._list(self._literal_item, "}", empty=True)
        elif self._read("("):
            self._tuple(self.literal)
        elif not self._scalar():
            self._fail()
        self._depth -= 1

    def expression(self) -> None:
        """Read an expression."""
        self._enter()
        if self._read("["):
            self._list(self.expression, "]")
        elif self._read("{"):
            self._list(self._item, "}", empty=True)
        elif not self._scalar():
            is_tuple = self._primary()
            for _ in range(MAXIMUM_CHAIN):
                if is_tuple or not (self._attribute() or self._index()):
                    break
            else:
                raise NotPrinted(f"an expression with over {MAXIMUM_CHAIN} attributes and indices in a row")
        self._depth -= 1

    def _return(self) -> None:
        self.expression()

    def _if(self) -> None:
        self.expression()
        self._require(":")

    def _while(self) -> None:
        self._require("n:")

    def _for(self) -> None:
        self._require("n in range(")
        self.expression()
        self._require("):")

    def _with(self) -> None:
        self.expression()
        self._read(" as n")
        self._require(":")

    def _assignment(self) -> None:
        """Read an assignment to names or to an attribute, or a call whose result is not used."""
        targets = [self._spelled()]
        while self._read(", n"):
            targets.append(NAME)
        names = all(target == NAME for target in targets)
        if names and self._read(", = "):
            self.expression()
        elif len(targets) == 1 and names and (self._read(" : ") or self._read(": ")):
            self.type_()
            self._require(" = ")
            self.expression()
        elif (names or targets[0].endswith(".n")) and self._read(" = "):
            self.expression()
            if self._at < len(self._text):  # otherwise an operator with several results
                for _ in targets[1:]:
                    self._require(", ")
                    self.expression()
        elif len(targets) > 1 or not targets[0].endswith(")"):
            self._fail()

    def _spelled(self) -> str:
        start = self._at
        self.expression()
        return self._text[start : self._at]

    def _parameter(self) -> None:
        self._require("n: ")
        self.type_()
        if self._read("="):
            self.literal()

    def _result(self) -> None:
        self._require(" -> ")
        self.type_()
        self._require(":")

    def _scalar(self) -> bool:
        return any(map(self._read, (NUMBER, STRING, "None", "True", "False")))

    def _primary(self) -> bool:
        """Read the beginning of an expression; return True for a tuple, of which the printer takes no attribute."""
        if self._read(NAME):
            return False
        if self._read("("):
            return self._parenthesis()
        if self._read(FUNCTION):
            self._calls()
        elif self._read(QUALIFIED):
            self._qualified()
        elif self._read("torch.n") or self._read("ops.n.n"):
            self._require("(")
            self._list(self._argument, ")", empty=True)
        else:
            self._word()
        return False

    def _parenthesis(self) -> bool:
        """Read a tuple, or an object and what is done with it."""
        if self._tuple(self.expression) != 1 or self._text.endswith(",)", 0, self._at):
            return True
        if self._read(".n("):
            self._calls(opened=True)
        elif not (self._attribute() or self._index()):
            self._fail()
        return False

    def _qualified(self) -> None:
        """Read what follows a qualified name: a function's arguments, or those of a named tuple or an object."""
        if self._read(".__new__("):
            self._require(f"{QUALIFIED})")
        elif self._read("("):
            while not self._read(")"):
                self.expression()
                if not self._read(", "):
                    self._require(")")
                    return

    def _word(self) -> None:
        """Read one of the language's own functions."""
        if self._read("annotate("):
            self.type_()
            self._require(", ")
            if not self._read("[]"):
                self.expression()
                self._read(TO_LIST)
        elif self._read("unchecked_cast("):
            self.type_()
            self._require(", ")
            self.expression()
        elif self._read("uninitialized("):
            self.type_()
        elif self._read("isinstance("):
            self.expression()
            self._require(", ")
            self._types()
        elif self._read("getattr("):
            self.expression()
            self._require(f", {STRING}")
        elif any(self._read(f"{word}(") for word in _BUILTINS):
            self._list(self.expression, "")
        else:
            self._fail()
        self._require(")")

    def _types(self) -> None:
        if self._read("("):
            self._list(self.type_, ")")
        else:
            self.type_()

    def _argument(self) -> None:
        self._read("n=")
        self.expression()

    def _item(self) -> None:
        self.expression()
        self._require(": ")
        self.expression()

    def _literal_item(self) -> None:
        self.literal()
        self._require(": ")
        self.literal()

    def _attribute(self) -> bool:
        return self._read(".n")

    def _index(self) -> bool:
        """Read an index or a slice of a tuple."""
        if not self._read("["):
            return False
        self.expression()
        if self._read(":"):
            self._require(NUMBER)
        self._require("]")
        return True

    def _calls(self, *, opened: bool = False) -> None:
        """Read the arguments of a plan's own function, each of which ends in a comma."""
        if not opened:
            self._require("(")
        while not self._read(")"):
            self.expression()
            self._require(", ")

    def _list(self, production: Callable[[], None], end: str, *, empty: bool = False) -> None:
        if empty and self._read(end):
            return
        production()
        while self._read(", "):
            production()
        self._require(end)

    def _tuple(self, production: Callable[[], None]) -> int:
        """Read a tuple behind its bracket, or one expression; return the number of its elements."""
        if self._read(")"):
            return 0
        production()
        count = 1
        while self._read(", "):
            production()
            count += 1
        if count == 1:
            self._read(",")
        self._require(")")
        return count

    def _read(self, token: str) -> bool:
        """Read a token if it is next; a name ends where it does."""
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _require(self, token: str) -> None:
        if not self._read(token):
            self._fail()

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAXIMUM_NESTING:
            raise NotPrinted(f"an expression of more than {MAXIMUM_NESTING} open brackets")

    def _fail(self) -> NoReturn:
        raise NotPrinted("a line that torch's printer does not write")
