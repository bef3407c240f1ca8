"""The names a file may ask for, and the harmless thing each one makes. object other name is refused.

Options (`argparse.Namespace`) and vocabularies become dictionaries of their attributes, numpy's scalars plain numbers,
parameters plain tensors; the attributes PyTorch hangs on dictionaries of weights (`_metadata`) are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from matchlight.training.foreign.machine import Forbidden, Known, Options, Refused, plain_key, shown
from matchlight.training.foreign.tensors import view

CODES = {"?", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"}
KINDS = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
}


class Number:
    """numpy's description of a number: its code and, once restored, its byte order."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "="

    @property
    def dtype(self) -> np.dtype:
        """The numpy type itself."""
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


def _number(code: object, *_: object) -> Number:
    if not isinstance(code, str) or code not in CODES:
        raise Refused(f"holds a numpy value of type {shown(code)}, which is refused: only numbers are read")
    return Number(code)


def _raw(data: object) -> bytes:
    if not isinstance(data, (str, bytes, bytearray)):
        raise TypeError("numbers that are no bytes")
    return data.encode("latin-1") if isinstance(data, str) else bytes(data)


def _scalar(number: object, data: object) -> object:
    raw = _raw(data)
    if not isinstance(number, Number) or len(raw) != number.dtype.itemsize:
        raise ValueError("a numpy scalar of the wrong length")
    return np.frombuffer(raw, number.dtype)[0].item()


def _empty_array(kind: object, shape: object, code: object) -> np.ndarray:
    if kind is not ARRAY:
        raise Refused("holds a numpy array of a special class, which is refused")
    return np.empty(0, np.float32)  # the true shape and numbers come with its state


def _restore_array(array: np.ndarray, state: tuple[object, ...]) -> None:
    _, shape, number, fortran, data = state
    raw = _raw(data)
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32:
        raise ValueError("a numpy array without a shape")
    if not isinstance(number, Number) or math.prod(shape) * number.dtype.itemsize != len(raw):
        raise ValueError("a numpy array whose shape and data disagree")
    # in place, since the pickle may refer to it again
    array.__setstate__((1, shape, number.dtype, bool(fortran), raw))  # type: ignore[arg-type]


def _encode(text: object, encoding: object) -> bytes:
    if encoding not in ("latin1", "latin-1"):  # how Python 3 writes bytes for Python 2
        raise Refused(f"encodes text as {shown(encoding)}, which is refused")
    if not isinstance(text, str):
        raise TypeError("text that is none")
    return text.encode("latin-1")


def _ordered(pairs: object = ()) -> dict[object, object]:
    if not isinstance(pairs, (list, tuple)):
        raise TypeError("a dictionary of something else than pairs")
    return {plain_key(key): value for key, value in pairs}


def _members(items: object = ()) -> list[object]:
    if not isinstance(items, (list, tuple)):
        raise TypeError("a set of something else than a list")
    return [plain_key(item) for item in items]


def _reconstructed(cls: object, base: object, state: object) -> Options:
    if not isinstance(cls, Known) or cls.make is not Options or base is not OBJECT or state is not None:
        raise Forbidden("rebuilds an object of an unknown class, which is refused")
    return Options()


def _tensor(storage: object, offset: object, size: object, stride: object, *rest: object) -> Tensor:
    if len(rest) > 3 or any(rest[2:]):  # requires_grad and hooks do not matter; conjugate and negative bits would
        raise Refused("holds a tensor with lazily conjugated or negated values; save a resolved copy")
    return view(storage, offset, size, stride)


def _parameter(data: object, *_: object) -> Tensor:
    if not isinstance(data, Tensor):
        raise TypeError("a parameter that is no tensor")
    return data


ARRAY, OBJECT = Known("numpy.ndarray"), Known("object")


def _table() -> dict[tuple[str, str], Known]:
    makers: dict[str, Callable[..., object]] = {
        "torch._utils._rebuild_tensor": _tensor,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch._utils._rebuild_parameter": _parameter,
        "collections.OrderedDict": _ordered,
        "argparse.Namespace": Options,
        "_codecs.encode": _encode,
        "numpy.dtype": _number,
    }
    for numpy in ("numpy.core.multiarray", "numpy._core.multiarray"):
        makers |= {f"{numpy}.scalar": _scalar, f"{numpy}._reconstruct": _empty_array}
    for builtins, copyreg in (("builtins", "copyreg"), ("__builtin__", "copy_reg")):  # Python 3, Python 2
        makers[f"{builtins}.set"] = lambda items=(): set(_members(items))
        makers[f"{builtins}.frozenset"] = lambda items=(): frozenset(_members(items))
        makers[f"{builtins}.bytes"] = lambda: b""  # what empty bytes look like in old protocols
        makers[f"{copyreg}._reconstructor"] = _reconstructed
    known = [Known(name, make) for name, make in makers.items()]
    known += [Known(f"{torch_}.{k}Storage", kind=v) for torch_ in ("torch", "torch.cuda") for k, v in KINDS.items()]
    known += [Known(f"torch.storage.{kind}Storage", kind=torch.uint8) for kind in ("Untyped", "Typed")]
    table = {(module, name): entry for entry in known for module, _, name in [entry.name.rpartition(".")]}
    objects = {(builtins, "object"): OBJECT for builtins in ("builtins", "__builtin__")}
    return {
        **table,
        **objects,
        ("numpy", "ndarray"): ARRAY,
        ("torch", "UntypedStorage"): Known("untyped", kind=torch.uint8),
    }


KNOWN = _table()


class Names:
    """The world of a pickle that stands alone: the known names, and no persistent ids."""

    def find(self, module: str, name: str) -> Known:
        """What a name stands for; a vocabulary may come from any module, often `__main__`."""
        if name == "Vocabulary":
            return Known("Vocabulary", Options)
        if (module, name) not in KNOWN:
            asked = shown(f"{module}.{name}")
            raise Forbidden(f"asks for {asked}, which is refused: only tensors, plain values and options are read")
        return KNOWN[module, name]

    def fetch(self, key: object) -> object:
        """Persistent ids belong to checkpoints."""
        raise Refused("refers to data outside itself, which only a checkpoint may")

    def restore(self, target: object, state: object) -> None:
        """Give an object its state: attributes for options, numbers for numpy's arrays."""
        if type(target) is Options and isinstance(state, dict):
            target.update((str(plain_key(key)), value) for key, value in state.items())
        elif type(target) is Number and isinstance(state, tuple):
            target.order = state[1] if state[1] in ("<", ">") else "="
        elif type(target) is np.ndarray and isinstance(state, tuple):
            _restore_array(target, state)
        elif type(target) is not dict:  # what hangs on a dictionary (`_metadata`) is dropped
            raise Forbidden(f"sets the state of a {type(target).__name__}, which is refused")
