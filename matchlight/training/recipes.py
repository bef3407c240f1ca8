"""Every method by name. A method's arguments are its function's keywords: their names, types and defaults are the API.

`RECIPES` maps a name to a `Method`; `arguments` checks what a user typed against the function's signature and fills in
the preset: `paper` keeps the function's defaults, `small` takes the method's own small sizes, `auto` looks at the data
and the machine and says what it chose.
"""

from __future__ import annotations

import difflib
import inspect
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from matchlight.core import BadInput, Recipe

ON, OFF = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
SHARES = {"caption_dropout", "drop_regions", "drop_words", "dropout", "ema"}
ABOVE = {"alike", "alpha", "crop", "q", "rate", "second_rate", "temperature"}  # nothing can be done with 0
UP_TO = {"alike", "crop", "q", "threshold"}  # 1 at most
SIGNED = {"log_sigma", "shift"}  # other numbers: 0 at least
LEAST = {"batch": 2, "drop_epoch": 0, "freeze_epochs": 0, "saf_epochs": 0, "warm": 0}  # other whole numbers: 1
WORDS = {"select": ("best", "noisy", "last"), "siblings": ("masked", "negatives")}


@dataclass(frozen=True)
class Foreign:
    """An authors' checkpoint in our words: the recipe's arguments, the sizes found in the weights, the weights."""

    arguments: dict[str, Any]
    sizes: dict[str, int]  # image_dim, vocabulary, classes, ...
    weights: dict[str, Any]
    kind: str = "regions"  # what the picture encoder reads: "regions" | "vector"


def renamed(state: dict[str, Any], prefixes: dict[str, str]) -> dict[str, Any]:
    """A state dict under our names; the longest fitting prefix decides, and a key nobody claims is an error."""
    out = {}
    for key, value in state.items():
        fits = [old for old in prefixes if key.startswith(old)]
        if not fits:
            raise BadInput(f"unknown weight {key!r}: this file does not hold the kind of model that was named")
        old = max(fits, key=len)
        out[prefixes[old] + key[len(old) :]] = value
    return out


@dataclass(frozen=True)
class Method:
    """A recipe one can ask for by name."""

    name: str
    build: Callable[..., Recipe]  # build(sizes, **arguments)
    paper: str
    needs: tuple[str, ...]  # "pairs" | "labels" | "regions"
    small: dict[str, Any] = field(default_factory=dict)  # sizes for a few thousand pairs on two cores
    presets: dict[str, dict[str, Any]] = field(default_factory=dict)  # further named settings
    pooled: bool = False  # one feature vector a picture is enough
    over: str | None = None  # the argument that names the method this one is built on: its arguments are taken too
    base: Method | None = None  # that method, once it is known (`grounded`)
    sets: dict[str, dict[str, Any]] = field(default_factory=dict)  # by method below: other defaults for its arguments
    decides: tuple[str, ...] = ()  # arguments that mean the same to the method below, which is told or has no say
    weights: tuple[str, ...] = ()  # arguments that weigh a term here, and may be 0, though elsewhere they may not
    lasts: str = "epochs"  # the argument that says how long the method below trains
    begun: dict[str, Any] = field(default_factory=dict)  # settings of a run that starts from another's weights
    reader: Callable[[dict[str, Any]], Foreign | list[Foreign]] | None = (
        None  # authors' checkpoint -> ours, per network
    )

    @property
    def defaults(self) -> dict[str, Any]:
        """Argument names with the paper's values."""
        below = self._ground()
        return (self.lifted(below, below.defaults | self.sets.get(below.name, {})) if below else {}) | self.own

    @property
    def own(self) -> dict[str, Any]:
        """The arguments that are not those of a method below."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def types(self) -> dict[str, Any]:
        """Argument names with their declared types."""
        below = self._ground()
        build = self.build.func if isinstance(self.build, partial) else self.build
        return (self.lifted(below, below.types) if below else {}) | typing.get_type_hints(build)

    def lifted(self, below: Method, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings of the method below under the names they have here: `dive.alpha` beside an alpha of our own."""
        taken = self.own.keys() - set(self.decides)
        return {f"{below.name}.{name}" if name in taken else name: value for name, value in settings.items()}

    def _ground(self) -> Method | None:
        return self.base or (method(self.own[self.over]) if self.over else None)


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """'; did you mean X?' where something is close, else the list of what there is."""
    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.55)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(options)}"


def check_choices(**chosen: tuple[str, tuple[str, ...]]) -> None:
    """One clear line for a word that is not one of an argument's choices."""
    for name, (value, known) in chosen.items():
        if value not in known:
            raise BadInput(f"{name}={value}: {', '.join(known[:-1])} or {known[-1]}")


def method(name: str) -> Method:
    """The method of that name."""
    from matchlight.methods import RECIPES

    if name not in RECIPES:
        raise BadInput(f"{name!r} is no method; {nearest(name, RECIPES)} (`matchlight methods` lists them)")
    return RECIPES[name]


def spelled(name: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """`dive strategy=ncr+` as what it is, `ncr+ scorer=dive`: a method may name what is built on it."""
    from matchlight.methods import RECIPES

    if "strategy" not in given:
        return name, given
    open_ones = (one for one in RECIPES.values() if not isinstance(one.build, partial))  # lantern has chosen its base
    above = {one.name: one.over for one in open_ones if one.over}
    check_choices(strategy=(str(given["strategy"]), tuple(above)))
    chosen = str(given["strategy"])
    rest = {key: value for key, value in given.items() if key != "strategy"}
    if above[chosen] in rest:
        raise BadInput(f"{above[chosen]}={rest[above[chosen]]}: with strategy={chosen} it is {name} already")
    return chosen, {**rest, above[chosen]: name}


def grounded(chosen: Method, given: dict[str, Any]) -> Method:
    """A method that is built on another (`ncr scorer=saf`), with the sizes and presets of the one below it."""
    if chosen.over is None or chosen.base is not None:
        return chosen
    below = method(str(given.get(chosen.over, chosen.own[chosen.over])))
    if below.over is not None or "pairs" not in below.needs:
        raise BadInput(f"{chosen.over}={below.name}: {chosen.name} is built on one of {', '.join(grounds())}")
    known = {*chosen.lifted(below, below.defaults), *chosen.own}
    presets = {name: _raised(chosen, below, preset) for name, preset in below.presets.items()}
    for name, preset in chosen.presets.items():
        presets[name] = presets.get(name, {}) | _known(preset, known)
    small = chosen.lifted(below, below.small) | _known(chosen.small, known)
    return replace(chosen, base=below, small=small, presets=presets, pooled=below.pooled)


def grounds() -> list[str]:
    """Methods that others can be built on: they learn from pairs and are built on nothing themselves."""
    from matchlight.methods import RECIPES

    return [one.name for one in RECIPES.values() if one.over is None and "pairs" in one.needs]


def lowered(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What was given for the method below, under its own names."""
    return {key.removeprefix(f"{name}."): value for key, value in settings.items()}


def _raised(chosen: Method, below: Method, preset: dict[str, Any]) -> dict[str, Any]:
    """A preset of the method below for what is built on it; its length is that of its own part."""
    lifted = chosen.lifted(below, preset)
    return {chosen.lasts if name == "epochs" else name: value for name, value in lifted.items()}


def _known(settings: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """A method's own settings, without those that only another base has."""
    return {name: value for name, value in settings.items() if name in names}


def convert(name: str, value: Any, kind: Any) -> Any:
    """One argument as its declared type; nothing is evaluated."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if value is None or (isinstance(value, str) and value.lower() == "none" and type(None) in options):
            return None
        kind = next(option for option in options if option is not type(None))
    try:
        return _plain(value, kind)
    except (TypeError, ValueError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, f"a {kind.__name__}")
        raise BadInput(f"{name}={value}: {name} must be {wanted}") from None


def _plain(value: Any, kind: Any) -> Any:
    if kind is bool:
        word = str(value).lower()
        if word not in ON | OFF:
            raise ValueError(word)
        return word in ON
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError(value)
    return kind(value)


def check_range(name: str, value: Any) -> None:
    """One clear line for a number no method can use: nan, batch=0, dropout=3."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, int) and name not in SHARES:
        least = LEAST.get(name, 1)
        if value < least:
            raise BadInput(f"{name}={value}: {name} must be at least {least}")
    elif not math.isfinite(value):
        raise BadInput(f"{name}={value}: {name} must be a finite number")
    elif name in SHARES and not 0 <= value < 1:
        raise BadInput(f"{name}={value}: {name} must be from 0 to below 1")
    else:
        _check_bounds(name, name.rpartition(".")[2], value)


def _check_bounds(name: str, plain: str, value: float) -> None:
    if plain in ABOVE and value <= 0:
        raise BadInput(f"{name}={value}: {name} must be above 0")
    if plain not in SIGNED and value < 0:
        raise BadInput(f"{name}={value}: {name} must be at least 0")
    if plain in UP_TO and value > 1:
        raise BadInput(f"{name}={value}: {name} must be at most 1")


def parse(words: list[str]) -> dict[str, str]:
    """`name=value` words of a command line as a dict."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"{word!r}: an override is written name=value, as in epochs=20")
        out[name] = value
    return out


def arguments(
    chosen: Method, given: dict[str, Any], *, pairs: int, device: str, begun: bool = False
) -> tuple[dict[str, Any], str]:
    """All arguments of a run (defaults, preset, overrides) and the name of the preset that was taken."""
    given, chosen = dict(given), grounded(chosen, given)
    preset = str(given.pop("preset", "auto"))
    known = chosen.defaults
    given = _short(chosen, given, known)
    for name in given:
        if name not in known:
            raise BadInput(f"{chosen.name} takes no argument {name!r}; {nearest(name, [*known, 'preset'])}")
    named = {name: convert(name, value, chosen.types[name]) for name, value in given.items()}
    _check_values(named, weights=chosen.weights)
    taken, base = _preset(chosen, preset, pairs=pairs, device=device, batch=named.get("batch"))
    return {**known, **base, **(chosen.begun if begun else {}), **named}, taken


def _short(chosen: Method, given: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the method below may be written with its name (`scan.temperature`) where they need not be too."""
    if chosen.base is None:
        return given
    below = {f"{chosen.base.name}.{name}": name for name in chosen.base.defaults if name in known}
    plain = {name: name if name in known else below.get(name, name) for name in given}
    if twice := [name for name, short in plain.items() if short != name and short in given]:
        raise BadInput(f"{twice[0]} and {plain[twice[0]]} are one argument of {chosen.name}; give it once")
    return {plain[name]: value for name, value in given.items()}


def _check_values(named: dict[str, Any], *, weights: tuple[str, ...]) -> None:
    """Values that every method reads alike: told before anything slow begins."""
    for name, value in named.items():
        if not (name in weights and value == 0):
            check_range(name, value)
    check_choices(**{name: (named[name], known) for name, known in WORDS.items() if name in named})


def _preset(chosen: Method, preset: str, *, pairs: int, device: str, batch: int | None) -> tuple[str, dict[str, Any]]:
    options = {"paper": {}, "small": chosen.small, **chosen.presets}
    if preset == "auto":
        return _auto(chosen, pairs=pairs, device=device, batch=batch)
    if preset not in options:
        raise BadInput(f"preset={preset}: {nearest(preset, ['auto', *options])}")
    return preset, options[preset]


def _auto(chosen: Method, *, pairs: int, device: str, batch: int | None) -> tuple[str, dict[str, Any]]:
    """Small sizes on a CPU or for little data, the paper's on a GPU; more epochs where an epoch is few steps."""
    small = device == "cpu" or pairs < 2000
    base = dict(chosen.small) if small else {}
    batch = batch or base.get("batch", chosen.defaults.get("batch", 128))
    steps = max(1, -(-pairs // batch))
    wanted = chosen.small.get("epochs", 12) if small else chosen.defaults["epochs"]
    budget = 600 if small else 60000  # steps: what two cores do in a few minutes, a GPU in an hour
    base["epochs"] = int(min(max(wanted, min(40, 300 // steps)), max(4, budget // steps)))
    return "auto:" + ("small" if small else "paper"), base
