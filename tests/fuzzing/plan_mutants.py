"""Mutants of honest plans, and an oracle that tells whether loading one has executed anything.

    python -m tests.fuzzing.plan_mutants --mutants 200000 --processes 2

A mutant must be refused, or load to a module whose operators are all on the list, without executing anything. The
oracle shares no code with the inspection: a directory in which the mutants' payloads would create files, the open files
and sockets of the process, the operators that torch's dispatcher is asked for while it loads, and the operators that
torch itself finds in the loaded module.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import signal
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from mmap import mmap
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.inspection.operator_list import allowed_names
from moonfed.plan.inspection.operators import load_module
from moonfed.plan.interface import quiet_torchscript
from tests.fuzzing.plan_decoders import Constructs
from tests.support.attack_plans import archive_of
from tools.generate_operators import plans

REFUSED, BROKEN, LOADED = "refused by the inspection", "refused by torch", "loaded"
BATCH = 5000  # mutants of one child process
SECONDS = 20  # for one mutant
LARGEST = 1 << 20  # bytes of a mutant
Records = dict[str, bytes]


class Oracle(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices what executes within it: operators, new files below a directory, and open files and sockets."""

    def __init__(self, canary: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: set[str] = set()
        self._canary, self._open = canary, _descriptors()

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: Sequence[object] = (), kwargs: object = None
    ) -> object:
        """Note an operator, and execute it."""
        self.operators.add(str(func))
        return func(*args, **(kwargs if isinstance(kwargs, dict) else {}))

    def seen(self, usual: set[str]) -> str:
        """Return what was executed besides the usual operators of a load, or nothing."""
        if files := [path.name for path in self._canary.iterdir()]:
            return f"the file {files[0]} was created"
        if _descriptors() != self._open:
            return f"files were opened: {sorted(_descriptors() - self._open)}"
        return "".join(f"the operator {name} was executed" for name in sorted(self.operators - usual)[:1])


def _descriptors() -> set[str]:
    """Return what the open descriptors refer to; the listing's own is gone when it is read."""
    found = {os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}
    return {path for path in found if not path.startswith("/proc/")}


class Trial:
    """Loads mutants, with the oracle around the loader."""

    def __init__(self, seeds: Sequence[bytes], canary: Path) -> None:
        self._canary, self._usual = canary, set[str]()
        for seed in seeds:  # what loading honest plans executes: tensors are made from their bytes
            oracle = Oracle(canary)
            with oracle:
                self._load(seed)
            self._usual |= oracle.operators

    def outcome(self, mutant: bytes) -> str:
        """Return REFUSED, BROKEN or LOADED; AssertionError if anything was executed, or an operator is not allowed."""
        oracle = Oracle(self._canary)
        try:
            with oracle:
                module = self._load(mutant)
        except UnsafePlan:
            result = REFUSED
        except Exception:  # torch raises many kinds for code that does not compile
            result = BROKEN
        else:
            result = LOADED
            unknown = operators_of(module) - allowed_names()
            assert not unknown, f"the loaded plan has the operators {sorted(unknown)}"
        seen = oracle.seen(self._usual)
        assert not seen, f"{seen}; {result}"
        return result

    def _load(self, content: bytes) -> torch.jit.ScriptModule:
        with quiet_torchscript():
            return load_module(inspect_archive(content), "cpu")


def operators_of(module: torch.jit.ScriptModule) -> set[str]:
    """Return the operators in the text of a module's inlined graphs."""
    bindings: Any = module._c
    graphs = [str(bindings._get_method(name).inlined_graph) for name in bindings._method_names()]
    plain = [re.sub(r'"(?:[^"\\]|\\.)*"', "", graph) for graph in graphs]
    return {name for graph in plain for name in re.findall(r"\w+::\w+", graph)}


def seeds() -> list[bytes]:
    """Return honest archives: the constructs of plans, and a plan of each method, network and augmentation."""
    return [archive_of(Constructs()), *(each for each in plans() if len(each) < 150_000)]


def payloads(canary: Path) -> tuple[str, ...]:
    """Return expressions that leave a trace if they are executed."""
    file = f'"{canary}/trace"'
    return (
        f"torch.from_file({file}, True, 4)",
        f"torch.save(1, {file})",
        f"ops.aten.from_file({file}, True, 4)",
        "torch.zeros([3])",
        "torch.relu(torch.ones([2]))",
        "ops.prim.TimePoint()",
        "torch.manual_seed(1)",
        'print("x")',
        "ops.aten.warn(1)",
    )


def mutants(archives: Sequence[bytes], seed: int, canary: Path) -> Iterator[bytes]:
    """Yield mutants for ever, the same ones for the same seed: bytes, tokens and lines are changed."""
    chosen = random.Random(seed)
    every = [_records(archive) for archive in archives]
    texts = [record.decode() for records in every for name, record in records.items() if name.endswith(".py")]
    changes = Changes(chosen, texts, payloads(canary))
    while True:
        records = every[0] if chosen.random() < 0.97 else chosen.choice(every)  # the first is small, so most are quick
        names = [name for name in records if name.endswith(".py")]
        name = chosen.choice(names) if chosen.random() < 0.9 else chosen.choice(list(records))
        changed = dict(records)
        for _ in range(chosen.choice((1, 1, 1, 2, 3))):
            if name.endswith(".py") and chosen.random() < 0.8:
                text = changed[name].decode("utf-8", "surrogateescape")
                changed[name] = chosen.choice((changes.token, changes.line))(text).encode("utf-8", "surrogateescape")
            else:
                changed[name] = changes.bytes(changed[name])
        archive = _archive(changed)
        yield archive if chosen.random() < 0.98 else changes.bytes(archive)


class Changes:
    """Single changes of a text or of bytes."""

    TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|-?[0-9][0-9.e+-]*|->|\n *| +|.')
    BLANKS = ("\t", "\f", "\v", "\r", "\r\n", "\xa0", "\u2003", "\u2028", "\x00", "\\\n", "   ", "", " ", "\n", "\n\n")
    TOKENS = (
        *"()[]{}:,.=;#'\"\\@*+-/%&|^~<>!?`$",
        *("def", "class", "lambda", "elif", "import", "yield", "del", "global", "assert", "raise", "is not", "and"),
        *("__setstate__", "__getstate__", "__reduce__", "__new__", "__init__", "__annotations__", "__parameters__"),
        *("# type: (Tensor) -> Tensor", '"""', "'x'", "9" * 60, "1e9999", "0x10", "1_000", "1.e", "2.j", "nan", "inf"),
        *("torch.classes.a.b", "__torch__.torch.classes.a.B", "ops", "torch", "CONSTANTS.c0", "self", "print", "fork"),
        *("Final[int]", "Tensor", "Optional[Tensor]", "=", "= ", " = "),
    )

    def __init__(self, chosen: random.Random, texts: Sequence[str], attacks: Sequence[str]) -> None:
        self._random = chosen
        self._lines = sorted({line for text in texts for line in text.split("\n")})
        self._words = sorted({token for text in texts for token in self.TOKEN.findall(text) if len(token) < 80})
        self._attacks = attacks

    def token(self, text: str) -> str:
        """Replace, remove, repeat or insert a token."""
        found = list(self.TOKEN.finditer(text))
        if not found:
            return self._new()
        at = self._random.choice(found)
        kind = self._random.randrange(5)
        if kind == 0:
            return text[: at.start()] + text[at.end() :]
        if kind == 1:
            return text[: at.end()] + at[0] + text[at.end() :]
        if kind == 2:
            return text[: at.end()] + self._new() + text[at.end() :]
        if kind == 3 and self._attacks:  # a default value or a constant
            return text[: at.end()] + self._random.choice(("=", " = ")) + self._attack() + text[at.end() :]
        return text[: at.start()] + self._new() + text[at.end() :]

    def line(self, text: str) -> str:
        """Remove, repeat, move, indent, replace or insert a line."""
        lines = text.split("\n")
        at = self._random.randrange(len(lines))
        kind = self._random.randrange(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(self._random.randrange(len(lines) + 1), lines[at])
        elif kind == 2:
            lines.insert(self._random.randrange(len(lines)), lines.pop(at))
        elif kind == 3:
            lines[at] = self._random.choice((" ", "  ", "\t", "   ", "    ")) + lines[at]
        elif kind == 4:
            lines[at] = lines[at][self._random.randrange(1, 5) :]
        elif kind == 5:
            lines.insert(at, self._random.choice(self._lines))
        else:
            lines.insert(at, self._attacking_line())
        return "\n".join(lines)

    def bytes(self, content: bytes) -> bytes:
        """Flip, set, remove or repeat bytes."""
        at = self._random.randrange(len(content) + 1)
        end = min(len(content), at + self._random.choice((1, 1, 1, 2, 4, 16)))
        kind = self._random.randrange(4)
        middle = (
            bytes(each ^ (1 << self._random.randrange(8)) for each in content[at:end])
            if kind == 0
            else self._random.randbytes(end - at)
            if kind == 1
            else b""
            if kind == 2
            else content[at:end] * 2
        )
        return (content[:at] + middle + content[end:])[:LARGEST]

    def _new(self) -> str:
        kind = self._random.randrange(4)
        return self._attack() if kind == 0 else self._random.choice((self.TOKENS, self.BLANKS, self._words)[kind - 1])

    def _attack(self) -> str:
        return self._random.choice(self._attacks)

    def _attacking_line(self) -> str:
        """A line in which torch would execute an expression while it loads the file, in a known or new disguise."""
        attack, blank = self._attack(), self._random.choice(self.BLANKS)
        return self._random.choice(
            (
                f"  attacked : Tensor = {attack}",
                f"  attacked : Final[Tensor] = {attack}",
                f"   attacked : Final[Tensor] = {attack}",
                f"  attacked = {attack}",
                f"  {attack}",
                attack,
                f"def{blank}attacked(x: Tensor={attack}) -> Tensor:\n  return x",
                f"  def{blank}attacked(self,\n    x: Tensor={attack}) -> Tensor:\n    return x",
                f"class{blank}Attacked(Module):\n  x : Final[Tensor] = {attack}",
                f"class Attacked:\n      x : Final[Tensor] = {attack}",
                f"class Attacked(Enum):\n  a = {attack}",
                f"class Attacked(NamedTuple):\n  a : Tensor = {attack}",
                f"  __parameters__ = [{attack}, ]",
                f'  __annotations__["{attack}"] = Tensor',
                f"  attacked : {attack}",
            )
        )


def _records(archive: bytes) -> Records:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        return {name: source.read(name) for name in source.namelist()}


def _archive(records: Mapping[str, bytes]) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_STORED) as target:
        for name, record in records.items():
            target.writestr(name, record)
    return output.getvalue()


def run(archives: Sequence[bytes], number: int, seed: int, findings: Path) -> Counter[str]:
    """Try mutants in child processes; count their outcomes, and write each finding with its mutant to a directory."""
    counts: Counter[str] = Counter()
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        canary = Path(directory, "canary")
        canary.mkdir()
        done = 0
        while done < number:
            shared = mmap(-1, LARGEST + 16)
            child = os.fork()
            if child == 0:
                try:
                    os._exit(_batch(archives, seed + done, min(BATCH, number - done), canary, shared, findings))
                finally:  # an error of this module
                    _write(findings, traceback.format_exc(), b"")
                    os._exit(1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found = Counter(dict(zip((REFUSED, BROKEN, LOADED), struct.unpack_from("3I", shared), strict=True)))
            if code < 0:
                size = struct.unpack_from("I", shared, 12)[0]
                _write(findings, f"died of {signal.Signals(-code).name}", shared[16 : 16 + size])
                found["died"] += 1
            elif code:
                found["executed or not allowed"] += 1
            counts += found
            done += BATCH
            print(f"{min(done, number):,} of {number:,} mutants: {dict(counts)}", file=sys.stderr, flush=True)
    return counts


def _batch(archives: Sequence[bytes], seed: int, number: int, canary: Path, shared: mmap, findings: Path) -> int:
    """Try a batch of mutants; return 1 if one of them was a finding."""
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch prints warnings
    trial, code = Trial(archives, canary), 0
    for position, mutant in enumerate(mutants(archives, seed, canary)):
        if position == number:
            break
        struct.pack_into("I", shared, 12, min(len(mutant), LARGEST))
        shared[16 : 16 + min(len(mutant), LARGEST)] = mutant[:LARGEST]
        signal.alarm(SECONDS)
        try:
            result = trial.outcome(mutant)
            at = 4 * (REFUSED, BROKEN, LOADED).index(result)
            struct.pack_into("I", shared, at, struct.unpack_from("I", shared, at)[0] + 1)
        except AssertionError as error:
            _write(findings, str(error), mutant)
            code = 1
            for path in canary.iterdir():
                path.unlink()
    return code


def _write(findings: Path, reason: str, mutant: bytes) -> None:
    name = f"finding-{time.time_ns()}"
    (findings / f"{name}.pt").write_bytes(mutant)
    (findings / f"{name}.txt").write_text(f"{reason}\n", "utf-8")


def main() -> None:
    """Try a number of mutants in several processes; exit with 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--findings", type=Path, default=Path("build/fuzzing/plan_mutants"))
    options = parser.parse_args()
    each = -(-options.mutants // options.processes)
    print(f"seed {options.seed}")
    archives, children = seeds(), []
    for number in range(options.processes):
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            counts = run(archives, each, options.seed + number * 2**32, options.findings)
            os.write(write, repr(dict(counts)).encode())
            os._exit(0)
        os.close(write)
        children.append((child, read))
    total: Counter[str] = Counter()
    for child, read in children:
        with os.fdopen(read) as result:
            total += Counter(eval(result.read() or "{'a process died': 1}"))  # noqa: S307 - our own child's
        os.waitpid(child, 0)
    everything = sum(total.values())
    for outcome, number in total.most_common():
        print(f"{outcome}: {number:,} ({100 * number / everything:.2f} %)")
    sys.exit(set(total) > {REFUSED, BROKEN, LOADED} or not set(total) <= {REFUSED, BROKEN, LOADED})


if __name__ == "__main__":
    main()
