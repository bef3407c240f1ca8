"""A pickle is a program for a small stack machine; this machine runs it with nothing to call but what we hand it.

Python's own unpickler can be told which names it may look up, yet it still trusts the file in two ways that matter:
five bytes can make it reserve gigabytes for its memo, and a dictionary key may be a tuple nested deep enough to crash
the interpreter when it is hashed. This machine keeps its memo in a dictionary, takes only plain keys, knows no
instruction beyond those that checkpoints use, and gives a file a budget in proportion to its size.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from matchlight.training.foreign.literals import LITERALS, Stream, as_text, exactly, fixed, line

SLACK = 1 << 20  # bytes any file may ask for, however small
LONGEST_KEY = 8  # parts of a tuple used as a key


class Refused(Exception):
    """What is wrong with the file, as the end of a sentence that starts with its name."""


class Forbidden(Refused):
    """The file asks for something that no checkpoint needs: a name or a call that is not on the list."""


class Options(dict[str, object]):
    """The attributes of an object in a file and nothing of its behaviour; `options.margin` or `options["margin"]`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or name not in self:  # Python's own hooks are never answered by a file
            raise AttributeError(f"the file holds no option {name!r}")
        return self[name]


@dataclass(frozen=True)
class Known:
    """A name that files may ask for: what is made when they call it, or the kind of number a storage holds."""

    name: str
    make: Callable[..., object] | None = None
    kind: torch.dtype | None = None


class World(Protocol):
    """All that a pickle can reach outside itself."""

    def find(self, module: str, name: str) -> Known:
        """What a name stands for."""

    def fetch(self, key: object) -> object:
        """What a persistent id stands for."""

    def restore(self, target: object, state: object) -> None:
        """Give an object its state."""


def shown(text: object) -> str:
    """A piece of the file fit for one line of a message: no control characters, not too long."""
    plain = ascii(text)[1:-1] if isinstance(text, str) else type(text).__name__
    return plain if len(plain) <= 80 else plain[:77] + "..."


def plain_key(key: object) -> object:
    """A dictionary key that is cheap to hash; Python 2's byte keys become text."""
    if isinstance(key, bytes):
        return as_text(key)
    parts = key if type(key) is tuple and len(key) <= LONGEST_KEY else (key,)
    if not all(part is None or isinstance(part, (str, int, float)) for part in parts):
        raise Refused(f"is damaged: it uses a {shown(key)} as a key")
    return key


class Machine:
    """Runs one pickle of a file of `size` bytes."""

    def __init__(self, stream: Stream, world: World, *, size: int) -> None:
        self.stream, self.world = stream, world
        self.budget = 4 * size + SLACK
        self.stack: list[object] = []
        self.below: list[list[object]] = []  # the stacks under each mark
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        """What the pickle describes."""
        try:
            while (code := exactly(self.stream, 1)) != pickle.STOP:
                self._step(code)
            return self.stack.pop()
        except EOFError:
            raise Refused("is cut short or damaged: its pickle has no end") from None
        except (IndexError, KeyError, TypeError, ValueError, OverflowError, RuntimeError, MemoryError, struct.error):
            raise Refused("is damaged: its pickle makes no sense") from None

    def _step(self, code: bytes) -> None:
        if code in LITERALS:
            self.stack.append(LITERALS[code](self.stream))
        elif code in STEPS:
            STEPS[code](self)
        else:
            raise Refused(f"is not a pickle that can be read safely: instruction {code!r} is refused")

    def _spend(self, parts: object) -> None:
        """Calls copy what they are given, and a memo lets them be given the same thing again and again."""
        held = parts if isinstance(parts, tuple) else (parts,)
        self.budget -= 16 + sum(len(part) for part in held if isinstance(part, (str, bytes, list, dict, tuple)))
        if self.budget < 0:
            raise Refused("asks for far more than it holds")

    def mark(self) -> None:
        """Start a new stack on top of this one."""
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[object]:
        """All that was pushed since the last mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def drop(self) -> None:
        """Forget the last thing, or the last mark where nothing follows it."""
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def last(self, count: int) -> None:
        """The last `count` things as a tuple."""
        if len(self.stack) < count:
            raise IndexError
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def remember(self, place: int) -> None:
        """Keep the last thing under a number."""
        self.memo[place] = self.stack[-1]

    def append(self, items: list[object]) -> None:
        """Items onto the list below."""
        if type(self.stack[-1]) is not list:
            raise TypeError
        self.stack[-1].extend(items)

    def insert(self, items: list[object]) -> None:
        """Keys and values in turn into the dictionary below."""
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise TypeError
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][plain_key(key)] = value

    def include(self, items: list[object]) -> None:
        """Items into the set below."""
        if type(self.stack[-1]) is not set:
            raise TypeError
        self.stack[-1].update(plain_key(item) for item in items)

    def name(self, module: object, name: object) -> Known:
        """What a name stands for in this world."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise TypeError
        return self.world.find(module, name)

    def lines(self) -> Known:
        """The name on the next two lines."""
        return self.name(line(self.stream).decode("utf-8"), line(self.stream).decode("utf-8"))

    def call(self) -> None:
        """Make what a known name makes of its arguments."""
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Known) or function.make is None or type(args) is not tuple:
            raise Forbidden(f"calls {function.name if isinstance(function, Known) else 'a value'}, which is refused")
        self._spend(args)
        self.stack.append(function.make(*args))

    def fresh(self, cls: object, args: object) -> None:
        """An object of a class: its attributes come later, so only empty arguments make sense."""
        if not isinstance(args, (tuple, list)):
            raise TypeError
        if not isinstance(cls, Known) or cls.make is not Options or args:
            raise Forbidden(
                f"builds {cls.name if isinstance(cls, Known) else 'a value'} as an object, which is refused"
            )
        self.stack.append(Options())

    def build(self) -> None:
        """Give the last thing its state."""
        state, target = self.stack.pop(), self.stack[-1]
        self._spend(state)
        self.world.restore(target, state)


def _operands(machine: Machine, count: int) -> list[object]:
    if len(machine.stack) <= count:  # what they act on lies below them
        raise IndexError
    taken = machine.stack[-count:]
    del machine.stack[-count:]
    return taken


def _instance(machine: Machine, cls: object | None = None) -> None:
    items = machine.since_mark()
    machine.fresh(items.pop(0) if cls is None else cls, items)


def _push(make: Callable[[Machine], object]) -> Callable[[Machine], None]:
    def step(machine: Machine) -> None:
        value = make(machine)  # first, since it may put another stack in place
        machine.stack.append(value)

    return step


def _ahead(form: str) -> Callable[[Machine], int]:
    read = fixed(form)
    return lambda machine: read(machine.stream)


def _dictionary(machine: Machine) -> None:
    items = machine.since_mark()
    machine.stack.append({})
    machine.insert(items)


STEPS: dict[bytes, Callable[[Machine], object]] = {  # instructions that act on the stack
    pickle.PROTO: _ahead("<B"),
    pickle.FRAME: _ahead("<Q"),
    pickle.MARK: Machine.mark,
    pickle.POP: Machine.drop,
    pickle.POP_MARK: Machine.since_mark,
    pickle.DUP: _push(lambda m: m.stack[-1]),
    pickle.TUPLE: _push(lambda m: tuple(m.since_mark())),
    pickle.TUPLE1: lambda m: m.last(1),
    pickle.TUPLE2: lambda m: m.last(2),
    pickle.TUPLE3: lambda m: m.last(3),
    pickle.LIST: _push(lambda m: m.since_mark()),
    pickle.DICT: _dictionary,
    pickle.FROZENSET: _push(lambda m: frozenset(plain_key(item) for item in m.since_mark())),
    pickle.APPEND: lambda m: m.append(_operands(m, 1)),
    pickle.APPENDS: lambda m: m.append(m.since_mark()),
    pickle.SETITEM: lambda m: m.insert(_operands(m, 2)),
    pickle.SETITEMS: lambda m: m.insert(m.since_mark()),
    pickle.ADDITEMS: lambda m: m.include(m.since_mark()),
    pickle.PUT: lambda m: m.remember(int(line(m.stream))),
    pickle.BINPUT: lambda m: m.remember(_ahead("<B")(m)),
    pickle.LONG_BINPUT: lambda m: m.remember(_ahead("<I")(m)),
    pickle.MEMOIZE: lambda m: m.remember(len(m.memo)),
    pickle.GET: _push(lambda m: m.memo[int(line(m.stream))]),
    pickle.BINGET: _push(lambda m: m.memo[_ahead("<B")(m)]),
    pickle.LONG_BINGET: _push(lambda m: m.memo[_ahead("<I")(m)]),
    pickle.GLOBAL: _push(Machine.lines),
    pickle.STACK_GLOBAL: lambda m: m.stack.append(m.name(m.stack.pop(-2), m.stack.pop())),
    pickle.REDUCE: Machine.call,
    pickle.BUILD: Machine.build,
    pickle.NEWOBJ: lambda m: m.fresh(m.stack.pop(-2), m.stack.pop()),
    pickle.OBJ: _instance,
    pickle.INST: lambda m: _instance(m, m.lines()),
    pickle.BINPERSID: _push(lambda m: m.world.fetch(m.stack.pop())),
}
