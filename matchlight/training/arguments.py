"""Arguments of methods: one dataclass a method, its bounds in the annotations, shared groups inherited.

    @dataclass(frozen=True, kw_only=True)
    class Mine(Pictures, Ranking, Training):
        dim: Count = 1024
        dropout: Share = 0.1
        loss: Literal["hinge", "infonce"] = "hinge"

        def recipe(self, sizes: Sizes) -> Recipe: ...

Fields are what a user may set: their names, types, bounds and defaults (the paper's values) are the method's interface,
on the command line as in Python. What a user gives is checked here, by one line that names the argument.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal, TypeVar

from torch import nn

from matchlight.core import BadInput, Sizes
from matchlight.inputs.backbones.vision_transformer import TokenChoice, Tokens, Tuning
from matchlight.inputs.preprocessing import Frame
from matchlight.parts.encoders import from_pixels
from matchlight.parts.objectives import SoftmaxLoss
from matchlight.training.contract import Recipe, Select, Siblings
from matchlight.training.schedules import BackboneRates

Value = None | bool | int | float | str
Settings = Mapping[str, Value]
ON, OFF = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}

# ---- bounds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """Which numbers are allowed: from `least` (or above `above`) to `most` (or below `below`)."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def allows(self, value: float) -> bool:
        """Whether a number is inside."""
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        if self.least > -math.inf and (self.below < math.inf or self.most < math.inf):
            return f"from {self.least:g} to " + (f"below {self.below:g}" if self.below < math.inf else f"{self.most:g}")
        ends = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {end:g}" for word, end in ends.items() if math.isfinite(end))


def at_least(least: float) -> Bound:
    """Numbers from `least` on."""
    return Bound(least=least)


def above(limit: float, *, most: float = math.inf) -> Bound:
    """Numbers above `limit`."""
    return Bound(above=limit, most=most)


Count = Annotated[int, at_least(1)]
Whole = Annotated[int, at_least(0)]
BatchSize = Annotated[int, at_least(2)]
NonNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, above(0)]
Fraction = Annotated[float, above(0, most=1)]
Share = Annotated[float, Bound(least=0, below=1)]
Portion = Annotated[float, Bound(least=0, most=1)]

# ---- what a method's arguments are -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What can be set of a method; a subclass a method."""

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            check_choice(name, getattr(self, name), kind)

    def recipe(self, sizes: Sizes) -> Recipe:
        """All that training takes, for data of these sizes."""
        raise NotImplementedError

    def innermost(self) -> Arguments:
        """The arguments of the method that reads pictures and captions: the one below, where there is one."""
        return self

    def reads_pretrained(self) -> bool:
        """Whether pictures are stored features, and captions read by a network that knows the language."""
        return False


@dataclass(frozen=True, kw_only=True)
class Training(Arguments):
    """How long and how fast a method learns."""

    epochs: Count = 30
    batch: BatchSize = 128
    rate: Positive = 2e-4
    clip: NonNegative = 2.0
    select: Select = "best"


@dataclass(frozen=True, kw_only=True)
class Pictures(Arguments):
    """Which network pictures are seen through, at what size, and what is read of a vision transformer.

    `frame=stated` shows a network what its own preprocessor would, mostly the middle of a picture, not all of it.
    """

    backbone: str = "lite0"
    pixels: Count | None = None
    frame: Frame = "whole"
    tokens: Tokens = "both"
    cells: str | None = None


@dataclass(frozen=True, kw_only=True)
class TunedPictures(Pictures):
    """That network, and whether and how it is trained along.

    `backbone_rate` is a share of the rate as a CNN bears it; a vision transformer gets a fifteenth of that.
    `layer_decay`, `last`, `drop_path` and `checkpointing` are for vision transformers.
    """

    finetune: bool = False
    backbone_rate: NonNegative = 0.1
    layer_decay: Fraction = 1.0
    last: Whole | None = None
    drop_path: Share = 0.0
    checkpointing: bool = False

    def backbone_rates(self) -> BackboneRates:
        """How fast the backbone learns beside the rest."""
        return BackboneRates(self.backbone_rate, self.layer_decay)

    def behind_backbone(self, encoder: nn.Module) -> nn.Module:
        """The encoder of cells as it is, or behind the backbone where that is trained."""
        if not self.finetune:
            return encoder
        choice = TokenChoice.written(self.tokens, self.cells)
        tuning = Tuning(self.last, self.drop_path, self.checkpointing)
        return from_pixels(encoder, self.backbone, choice, tuning)


@dataclass(frozen=True, kw_only=True)
class Ranking(Arguments):
    """A hinge between a pair and its negatives, or a loss of probabilities in its place: wrong pairs harm it less."""

    margin: NonNegative = 0.2
    siblings: Siblings = "masked"
    loss: Literal["hinge", "infonce", "rclog", "gce"] = "hinge"

    def ranked(self, recipe: Recipe) -> Recipe:
        """A recipe of the hinge with the loss that was asked for; what it adds to its ranking stays."""
        if self.loss == "hinge":
            return recipe
        ranking, objective = SoftmaxLoss(self.loss, siblings=self.siblings), recipe.objective
        return replace(recipe, objective=lambda: objective().ranked_by(ranking))


@dataclass(frozen=True, kw_only=True)
class Hardening(Ranking):
    """The same, where the hinge may come from all negatives to the hardest over `harden` epochs after the warm-up."""

    harden: Whole = 0

    def check_hardening(self, *, hardest: bool = True) -> None:
        """One clear line where there is no hinge with the hardest negative to come to."""
        missing = [*(["loss=hinge"] if self.loss != "hinge" else []), *([] if hardest else ["hardest=true"])]
        if self.harden and missing:
            raise BadInput(f"harden={self.harden} leads to a hinge with the hardest negative: add {' '.join(missing)}")


@dataclass(frozen=True, kw_only=True)
class Staircase(Arguments):
    """A rate that falls to a tenth every so many epochs."""

    decay_every: Count = 15


@dataclass(frozen=True, kw_only=True)
class LabelTraining(Training):
    """How methods that learn from class labels are trained."""

    inputs: Literal["raw", "unit", "standard", "root"] = "raw"
    clip: NonNegative = 0.0
    validate_every: Count = 1


COSINES: Settings = {"score": "cosine"}  # of joint models below others: margins and temperatures are made for cosines


@dataclass(frozen=True, kw_only=True)
class BuiltOn(Arguments):
    """Arguments of a method that trains another method's model, whose arguments are one of its fields."""

    base_field: ClassVar[str]  # the field that holds them; on the command line it is that method's name
    shared: ClassVar[frozenset[str]] = frozenset()  # fields that mean the same to both: the base has no say in them
    base_epochs: ClassVar[str] = "epochs"  # the field that says how long the base's own presets train
    base_defaults: ClassVar[Mapping[str, Settings]] = {"dual": COSINES}  # by base: other defaults for its arguments
    open_base: ClassVar[bool] = True  # False: `strategy=` does not name it
    from_run: ClassVar[Settings] = {}  # settings of a run that starts from another's weights

    def base_arguments(self) -> Arguments:
        """The arguments of the method below."""
        raise NotImplementedError

    def innermost(self) -> Arguments:
        """Those of the method below."""
        return self.base_arguments().innermost()


Some = TypeVar("Some", bound=Arguments)


def with_known(arguments: Some, **values: Value) -> Some:
    """The same arguments with other values for those fields that they have."""
    known = {field.name for field in fields(arguments)}
    return replace(arguments, **{name: value for name, value in values.items() if name in known})


# ---- checking what was given -----------------------------------------------------------------------------------------

Kind = object  # a declared type: int, float | None, Annotated[...], Literal[...]


_KINDS: dict[type[Arguments], Mapping[str, Kind]] = {}  # asked for at every turn, and slow to find out


def kinds(arguments: type[Arguments]) -> Mapping[str, Kind]:
    """The declared type of each field."""
    if arguments not in _KINDS:
        hints = typing.get_type_hints(arguments, include_extras=True)
        _KINDS[arguments] = types.MappingProxyType({field.name: hints[field.name] for field in fields(arguments)})
    return _KINDS[arguments]


def plain_type(kind: Kind) -> tuple[type, Bound | None, tuple[Value, ...], bool]:
    """What a declared type comes to: the type itself, its bound, its choices, and whether None is allowed."""
    optional = typing.get_origin(kind) in (typing.Union, types.UnionType) and type(None) in typing.get_args(kind)
    if optional:
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    bound = None
    if typing.get_origin(kind) is Annotated:
        kind, bound = typing.get_args(kind)[:2]
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        return type(choices[0]), None, choices, optional
    assert isinstance(kind, type)
    return kind, bound, (), optional


def check_choice(name: str, value: Value, kind: Kind) -> None:
    """One clear line for a word that is not one of an argument's choices."""
    _, _, choices, optional = plain_type(kind)
    if choices and value not in choices and not (optional and value is None):
        words = [str(choice) for choice in choices]
        raise BadInput(f"{name}={value}: {', '.join(words[:-1])} or {words[-1]}")


def converted(name: str, value: Value, kind: Kind) -> Value:
    """One argument as its declared type, inside its bounds; nothing is evaluated."""
    wanted, bound, choices, optional = plain_type(kind)
    if optional and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    try:
        number = _as_type(value, wanted)
    except (TypeError, ValueError):
        if choices:
            check_choice(name, value, kind)
        what = {int: "a whole number", float: "a number", bool: "true or false"}.get(wanted, f"a {wanted.__name__}")
        raise BadInput(f"{name}={value}: {name} must be {what}") from None
    check_choice(name, number, kind)
    _check_bound(name, number, bound)
    return number


def _as_type(value: Value, wanted: type) -> Value:
    if wanted is bool:
        word = str(value).lower()
        if word not in ON | OFF:
            raise ValueError(word)
        return word in ON
    if value is None or (wanted is int and isinstance(value, float) and not value.is_integer()):
        raise ValueError(value)
    number: Value = wanted(value)
    return number


def _check_bound(name: str, value: Value, bound: Bound | None) -> None:
    """One clear line for a number that no method can use: nan, batch=0, dropout=3."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        raise BadInput(f"{name}={value}: {name} must be a finite number")
    if bound is not None and not bound.allows(value):
        raise BadInput(f"{name}={value}: {name} must be {bound}")
