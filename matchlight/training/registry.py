"""Methods by name: ours, those of installed packages, and those of a single file.

A method's arguments have flat names wherever a person writes them (`ncr scorer=saf dim=512`, recipe.json): its own, and
those of the method it is built on. Where both have a field of one name that means different things, the base's is
written with its method's name (`dive.alpha`). A preset is a set of other defaults: `paper` changes nothing, `small` has
sizes for two cores, `auto` looks at the data and the machine: where it takes small sizes, it takes a loss that survives
wrong pairs too.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from torch import Tensor

from matchlight import plugins
from matchlight.core import BadInput, Json, Sizes
from matchlight.data.cache import folder as cache_folder
from matchlight.files import read_json, write_json
from matchlight.training.arguments import Arguments, BuiltOn, Kind, Settings, Value, converted, kinds
from matchlight.training.contract import Recipe

Checkpoint = dict[str, Any]  # an authors' file as it was read: "model", "opt", ... in the layout of their code
Weights = Mapping[str, Tensor]  # a state dict, ours or theirs
SMALL_DATA = 2000  # pairs: fewer are trained with small sizes on any machine
TEN_MINUTES = 4000  # pairs that any method is done with in ten minutes on two cores
LONGER = 2400  # steps that more pairs may take, where the usual budget leaves fewer than eight epochs


@dataclass(frozen=True)
class Foreign:
    """An authors' checkpoint in our words: the method's arguments, the sizes found in the weights, the weights."""

    arguments: dict[str, Value]
    sizes: dict[str, int]  # image_dim, vocabulary, classes, ...
    weights: dict[str, Tensor]
    kind: str = "regions"  # what the picture encoder reads: "regions" | "vector"


def renamed(state: Weights, prefixes: Mapping[str, str]) -> dict[str, Tensor]:
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
    """A method that one can ask for by name."""

    name: str
    arguments: type[Arguments]
    paper: str
    needs: tuple[str, ...]  # "pairs" | "labels" | "regions" | "pictures"
    small: Settings = field(default_factory=dict)  # sizes for a few thousand pairs on two cores
    robust: Settings = field(default_factory=dict)  # what `auto` adds to them, so that wrong pairs do less harm
    presets: Mapping[str, Settings] = field(default_factory=dict)  # further named settings
    pooled: bool = False  # one feature vector a picture is enough
    reader: Callable[[Checkpoint], Foreign | list[Foreign]] | None = None  # authors' checkpoint -> ours, per network
    file: Path | None = None  # where it was loaded from, if from a single file

    @property
    def defaults(self) -> dict[str, Value]:
        """Flat names with the paper's values, on the usual base where there is one."""
        return Chosen.of(self).defaults

    @property
    def types(self) -> dict[str, Kind]:
        """Flat names with their declared types."""
        return Chosen.of(self).types

    def build(self, sizes: Sizes, **settings: Value) -> Recipe:
        """The recipe of these flat settings, all others as in the paper."""
        return Chosen.of(self, settings).typed(settings).recipe(sizes)


@dataclass(frozen=True)
class Chosen:
    """A method together with the method it is built on, and the flat names of both one's arguments."""

    method: Method
    base: Method | None = None

    @staticmethod
    def of(method: Method, given: Settings | None = None) -> Chosen:
        """With the base that the settings name, or the usual one."""
        above = built_on(method)
        if above is None:
            return Chosen(method)
        name = str((given or {}).get(above.base_field, usual_base(above)))
        base = find(name)
        if built_on(base) is not None or "pairs" not in base.needs:
            raise BadInput(f"{above.base_field}={base.name}: {method.name} is built on one of {', '.join(bases())}")
        return Chosen(method, base)

    @property
    def name(self) -> str:
        """The method's."""
        return self.method.name

    @property
    def pooled(self) -> bool:
        """Whether one feature vector a picture is enough for the model."""
        return (self.base or self.method).pooled

    @property
    def own(self) -> dict[str, Value]:
        """The method's own fields with their defaults; the base goes by its name."""
        own = field_defaults(self.method.arguments)
        above = built_on(self.method)
        return own if above is None or self.base is None else {**own, above.base_field: self.base.name}

    @property
    def scorer(self) -> Method:
        """The method whose model is trained: the base where there is one."""
        return self.base or self.method

    def settings_from(self, other: Chosen, flat: Settings) -> dict[str, Value]:
        """What another method's flat settings say here: all if it is the same one, else those of a common scorer."""
        if other.name == self.name:
            return dict(flat)
        if other.scorer.name != self.scorer.name:
            return {}
        own = {name for one in (self, other) for above in [built_on(one.method)] if above for name in above.shared}
        names = [name for name in kinds(self.scorer.arguments) if name not in own and other.flat_name(name) in flat]
        return {self.flat_name(name): flat[other.flat_name(name)] for name in names}

    def flat_name(self, name: str) -> str:
        """What a field of the scorer is called here."""
        above = built_on(self.method)
        if above is None or self.base is None:
            return name
        return f"{self.base.name}.{name}" if name in field_defaults(above).keys() - above.shared else name

    def flat(self, settings: Settings) -> dict[str, Value]:
        """Settings of the base under the names they have here."""
        return {self.flat_name(name): value for name, value in settings.items()}

    @property
    def defaults(self) -> dict[str, Value]:
        """Every flat name with its default."""
        above = built_on(self.method)
        if above is None or self.base is None:
            return self.own
        below = field_defaults(self.base.arguments) | dict(above.base_defaults.get(self.base.name, {}))
        return self.flat(below) | self.own

    @property
    def types(self) -> dict[str, Kind]:
        """Every flat name with its declared type."""
        above, own = built_on(self.method), dict(kinds(self.method.arguments))
        if above is None or self.base is None:
            return own
        below = {self.flat_name(name): kind for name, kind in kinds(self.base.arguments).items()}
        return below | own | {above.base_field: str}

    @property
    def presets(self) -> dict[str, dict[str, Value]]:
        """Every preset but `auto`, the base's own among them: its length is that of the base's part."""
        named = {"paper": {}, "small": self.method.small, **self.method.presets}
        above = built_on(self.method)
        if above is None or self.base is None:
            return {name: dict(preset) for name, preset in named.items()}
        known = self.defaults.keys()
        below = {name: self._for_base(preset, above) for name, preset in self.base.presets.items()}
        below["small"] = self.flat(self.base.small)
        mine = {name: {k: v for k, v in preset.items() if k in known} for name, preset in named.items()}
        return {name: below.get(name, {}) | mine.get(name, {}) for name in {**mine, **below}}

    def _for_base(self, preset: Settings, above: type[BuiltOn]) -> dict[str, Value]:
        return {above.base_epochs if name == "epochs" else name: value for name, value in self.flat(preset).items()}

    def typed(self, settings: Settings) -> Arguments:
        """Flat settings as the method's arguments; what is not given has its default."""
        above = built_on(self.method)
        if unknown := settings.keys() - self.defaults.keys():
            raise TypeError(f"{self.name} takes no argument {min(unknown)!r}")
        mine = kinds(self.method.arguments)
        own = {name: value for name, value in settings.items() if name in mine}
        if above is None or self.base is None:
            return self.method.arguments(**own)
        free = [name for name in kinds(self.base.arguments) if name not in above.shared]
        below = {name: settings[self.flat_name(name)] for name in free if self.flat_name(name) in settings}
        return self.method.arguments(**{**own, above.base_field: self.base.arguments(**below)})

    def build(self, sizes: Sizes, **settings: Value) -> Recipe:
        """The recipe of these flat settings."""
        return self.typed(settings).recipe(sizes)

    def check_known(self, given: Settings) -> dict[str, Value]:
        """Given settings under their flat names: the base's may be written with its name where they need not be."""
        known, plain = self.defaults, {name: name for name in given}
        if self.base is not None:
            written = {f"{self.base.name}.{name}": name for name in kinds(self.base.arguments) if name in known}
            plain = {name: name if name in known else written.get(name, name) for name in given}
        for name, short in plain.items():
            if short not in known:
                raise BadInput(f"{self.name} takes no argument {name!r}; {nearest(name, [*known, 'preset'])}")
            if short != name and short in given:
                raise BadInput(f"{name} and {short} are one argument of {self.name}; give it once")
        return {plain[name]: value for name, value in given.items()}


def built_on(method: Method) -> type[BuiltOn] | None:
    """The class of a method's arguments where it is built on another method."""
    return method.arguments if issubclass(method.arguments, BuiltOn) else None


def field_defaults(arguments: type[Arguments]) -> dict[str, Value]:
    """The fields of a class with their defaults; the base's own arguments are no value."""
    return {one.name: None if one.default is MISSING else one.default for one in fields(arguments)}


def usual_base(above: type[BuiltOn]) -> str:
    """The name of the method that one is built on where none is named."""
    return name_of(above().base_arguments())


def name_of(arguments: Arguments) -> str:
    """The name of the method that these arguments belong to."""
    return next((one.name for one in methods().values() if one.arguments is type(arguments)), type(arguments).__name__)


def bases() -> list[str]:
    """Methods that others can be built on: they learn from pairs and are built on nothing themselves."""
    return [one.name for one in methods().values() if built_on(one) is None and "pairs" in one.needs]


# ---- by name ---------------------------------------------------------------------------------------------------------


def methods() -> dict[str, Method]:
    """Every method by name; a stranger's that cannot be loaded is a line on stderr."""
    return {name: _from(value, name) for name, value in plugins.working("methods")}


def find(name: str) -> Method:
    """The method of that name. Never a file's: a name may come from a run's recipe, whose code must not be run."""
    if name not in (known := plugins.names("methods")):
        raise BadInput(f"{name!r} is no method; {nearest(name, known)} (`matchlight methods` lists them)")
    return _from(plugins.load("methods", name), name)


def asked_for(name: str) -> Method:
    """What a person typed: the name of a method, or a Python file of their own (`./my_method.py`)."""
    return from_file(Path(name)) if name.endswith(".py") else find(name)


def _from(value: object, name: str) -> Method:
    """What an entry point names: a `Method`, or a module's `METHODS`."""
    listed = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Method)]
    named = [one for one in listed if one.name == name]
    if not named:
        raise BadInput(
            f"{name!r} in matchlight.methods: its address must name a Method of that name, or a list of them"
        )
    return named[0]


def from_file(path: Path) -> Method:
    """The method that a Python file defines: the only one in its `METHODS`. The file is run: it is your own code."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; a method is a name from `matchlight methods` or a Python file")
    method = _run_file(path.resolve(), file_mark(path))
    _remember(path.resolve())
    return method


@cache
def _run_file(path: Path, mark: str) -> Method:
    """Run a file once, however often it is asked for; a changed one (another `mark`) is run again."""
    spec = spec_from_file_location(f"matchlight_method_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"{path}: cannot be loaded ({type(error).__name__}: {error})") from error
    listed = getattr(module, "METHODS", None)
    found = listed if isinstance(listed, list | tuple) else [v for v in vars(module).values() if isinstance(v, Method)]
    if len(found) != 1 or not isinstance(found[0], Method):
        raise BadInput(f"{path}: METHODS must hold one Method, and holds {len(found)} (see docs/extending.md)")
    if found[0].name in plugins.names("methods"):
        raise BadInput(f"{path}: there is a method {found[0].name!r} already; its name must be another")
    return replace(found[0], file=path)


def file_mark(path: Path) -> str:
    """Changes when a file does."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _known_files() -> Path:
    """Files that a person here has named: only these are run when a run of theirs is opened."""
    return cache_folder() / "method-files.json"


def _remember(path: Path) -> None:
    known, mark = _read_known(), file_mark(path)
    if known.get(str(path)) != mark:
        write_json(_known_files(), {**known, str(path): mark})


def _read_known() -> dict[str, Json]:
    known = read_json(_known_files(), "known method files") if _known_files().is_file() else {}
    return known if isinstance(known, dict) else {}


def is_known_file(path: Path, mark: str) -> bool:
    """Whether this file, unchanged, is one that was named here before."""
    return path.is_file() and _read_known().get(str(path)) == mark == file_mark(path)


def nearest(word: str, known: Iterable[str]) -> str:
    """'did you mean X?' where something is close, else the list of what there is."""
    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.55)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(options)}"


def choose(name: str, given: Settings) -> tuple[Chosen, dict[str, Value]]:
    """The method that was asked for, on its base, and what is left of the settings.

    `dive strategy=ncr+` is another way to write `ncr+ scorer=dive`: a method may name what is built on it.
    """
    rest = {key: value for key, value in given.items() if key != "strategy"}
    if "strategy" not in given:
        return Chosen.of(asked_for(name), given), rest
    known = {one.name: one.arguments for one in methods().values()}
    above = {name: one for name, one in known.items() if issubclass(one, BuiltOn) and one.open_base}
    chosen = str(given["strategy"])
    if chosen not in above:
        raise BadInput(f"strategy={chosen}: {', '.join(list(above)[:-1])} or {list(above)[-1]}")
    base_field = above[chosen].base_field
    if base_field in rest:
        raise BadInput(f"{base_field}={rest[base_field]}: with strategy={chosen} it is {name} already")
    rest[base_field] = name
    return Chosen.of(find(chosen), rest), rest


# ---- settings of a run -----------------------------------------------------------------------------------------------


def parse(words: list[str]) -> dict[str, str]:
    """`name=value` words of a command line as a dict."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"{word!r}: an override is written name=value, as in epochs=20")
        out[name] = value
    return out


def settings_of(
    method: Method, given: Settings, *, pairs: int, device: str, start: Settings | None = None
) -> tuple[dict[str, Value], str]:
    """All flat settings of a run (defaults, preset, what was given) and the name of the preset that was taken.

    `start` holds the settings of a run whose weights are begun with: {} if it is one of another method. They hold
    unless a preset that was asked for, the method's own settings for such runs, or an argument says otherwise.
    """
    chosen, asked = Chosen.of(method, given), dict(given)
    preset = str(asked.pop("preset", "auto"))
    types = chosen.types
    named = {name: converted(name, value, types[name]) for name, value in chosen.check_known(asked).items()}
    taken, changes = _preset(chosen, preset, pairs=pairs, device=device, batch=named.get("batch"))
    above = built_on(chosen.method)
    further = dict(above.from_run) if start is not None and above is not None else {}
    kept = {name: value for name, value in (start or {}).items() if name in types}
    settled = {**changes, **kept} if preset == "auto" else {**kept, **changes}
    return {**chosen.defaults, **settled, **further, **named}, taken


def _preset(chosen: Chosen, preset: str, *, pairs: int, device: str, batch: Value) -> tuple[str, dict[str, Value]]:
    presets = chosen.presets
    if preset == "auto":
        return _auto(chosen, presets["small"], pairs=pairs, device=device, batch=batch)
    if preset not in presets:
        raise BadInput(f"preset={preset}: {nearest(preset, ['auto', *presets])}")
    return preset, presets[preset]


def _auto(
    chosen: Chosen, sizes: dict[str, Value], *, pairs: int, device: str, batch: Value
) -> tuple[str, dict[str, Value]]:
    """Small sizes on a CPU or for little data, the paper's on a GPU; more epochs where an epoch is few steps."""
    small, usual = device == "cpu" or pairs < SMALL_DATA, chosen.defaults
    changes = {**sizes, **chosen.method.robust} if small else {}
    steps = max(1, -(-pairs // _whole(batch or changes.get("batch", usual.get("batch", 128)))))
    wanted = _whole(sizes.get("epochs", 12) if small else usual["epochs"])
    budget = 600 if small else 60000  # steps: what two cores do in a few minutes, a GPU in an hour
    fewest = max(4, min(8, LONGER // steps)) if small and pairs > TEN_MINUTES else 4
    changes["epochs"] = int(min(max(wanted, min(40, 300 // steps)), max(fewest, budget // steps)))
    return "auto:" + ("small" if small else "paper"), changes


def _whole(value: Value) -> int:
    assert isinstance(value, int)
    return value
