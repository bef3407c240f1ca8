"""The model card: `README.md` of a run, which the Hugging Face hub shows and reads.

Its head (YAML between two lines of `---`) states licence, method and figures for programs; the text says the same for
people: data, figures with their 95% intervals, the share of wrong pairs that training found, how to load it, limits.
Everything in it comes from the run's own files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.core import BadInput
from matchlight.inputs.weights.known_weights import CATALOGUE
from matchlight.runs.card_figures import Figure, figures

CARD = "README.md"
UNSTATED = "other"  # the hub's word for a licence that it does not know
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}")
LONGEST_NAME = 100  # letters of a name out of the data


def write_card(folder: Path, *, licence: str = "") -> None:
    """Write a run's card anew from its files; without a licence the one that a card states already is kept."""
    info = files.read_json(folder / "recipe.json", "a run's recipe")
    metrics = folder / "metrics.json"
    measured = files.read_json(metrics, "a run's metrics") if metrics.is_file() else {}
    files.write_text(folder / CARD, card(info, measured, noise=noise_found(folder), licence=licence or stated(folder)))


def with_licence(folder: Path, licence: str) -> None:
    """State a licence in a card, and leave all else in it as somebody may have written it."""
    if not LICENCE.fullmatch(licence):
        raise BadInput(f"--license {licence}: the hub's short name of a licence, such as apache-2.0, mit or cc-by-4.0")
    path = folder / CARD
    text = path.read_text(encoding="utf-8")
    head = re.sub(r"^license_name:.*\n", "", text, count=1, flags=re.MULTILINE)
    files.write_text(path, re.sub(r"^license:.*$", f"license: {licence}", head, count=1, flags=re.MULTILINE))


def stated(folder: Path) -> str:
    """The licence that the card in a folder states; other where it has none."""
    path = folder / CARD
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = re.search(r"\A---\n(?:.*\n)*?license: *(\S+)\n", text)
    return found[1] if found and LICENCE.fullmatch(found[1]) else UNSTATED


def noise_found(folder: Path) -> float | None:
    """The share of wrong training pairs that a run estimated while it learnt; None for methods that estimate none."""
    path = folder / "division.npz"
    if not path.is_file():
        return None
    kept = files.read_npz(path, "training writes it")
    if "noise" in kept and kept["noise"].size:  # NCR+ and Lantern
        return float(kept["noise"].ravel()[-1])
    doubted = [1 - np.nanmean(value) for name, value in kept.items() if name.startswith("clean_")]  # NCR
    return float(np.mean(doubted)) if doubted else None


def card(info: Mapping[str, object], metrics: Mapping[str, object], *, noise: float | None, licence: str) -> str:
    """The text of a card."""
    found = figures(metrics)
    name = _plain(info.get("name"))
    parts = [
        _head(name, found, licence, _data(info)),
        f"# {name}: pictures and captions in one space\n",
        f"An image-text retrieval model of Matchlight {_plain(info.get('version'))}.\n",
        f"## Data\n\n{_about_data(info)}\n",
        f"## Figures\n\n{_about_figures(found, metrics)}\n",
        f"## Wrong pairs\n\n{_about_noise(noise)}\n",
        f"## How to load\n\n{LOADING}\n",
        f"## Made with\n\n{_made_with(info)}\n",
        f"## Limits\n\n{_limits(info)}\n",
    ]
    return "\n".join(parts)


LOADING = """```python
import matchlight as ml

run = ml.load("hf:OWNER/NAME")  # or the folder of this file
print(ml.evaluate(run, ml.Pairs.read("my_photos"), split="test"))
```

`matchlight index hf:OWNER/NAME --data my_photos -o index` makes a search of it. Nothing in it is executed: weights are
safetensors, the rest is JSON."""


def _head(name: str, found: list[Figure], licence: str, data: str) -> str:
    """What programs read. JSON is YAML, so quoting is that of JSON."""
    unnamed = ["license_name: not-stated"] if licence == UNSTATED else []
    lines = ["library_name: matchlight", "pipeline_tag: feature-extraction", f"license: {licence}", *unnamed]
    lines.append(f"tags: {json.dumps(['image-text-retrieval', 'matchlight', name])}")
    if found:
        metrics = [{"type": _kind(one), "name": one.name, "value": round(one.value, 2)} for one in found]
        data_set = {"name": data or "own data", "type": "own", "split": "validation"}
        result = {"task": {"type": "image-text-retrieval"}, "dataset": data_set, "metrics": metrics}
        lines.append(f"model-index: {json.dumps([{'name': name, 'results': [result]}])}")
    return "\n".join(["---", *lines, "---", ""])


def _kind(figure: Figure) -> str:
    return "recall" if "R@" in figure.name else "mean_average_precision"


def _data(info: Mapping[str, object]) -> str:
    data = info.get("data")
    return _plain(data.get("root")) if isinstance(data, dict) else ""


def _about_data(info: Mapping[str, object]) -> str:
    sizes = info.get("sizes")
    known = sizes if isinstance(sizes, dict) else {}
    if not known.get("pairs"):
        return "An imported model: what it was trained on is described by its authors."
    counts = f"{known['pairs']:,} training pairs of {known.get('pictures', 0):,} pictures"
    words = f", {known['vocabulary']:,} words" if known.get("vocabulary") else ""
    return f"{_data(info) or 'A data set'}: {counts}{words}. The data is not part of this model."


def _about_figures(found: list[Figure], metrics: Mapping[str, object]) -> str:
    if not found:
        return "None were measured here. `matchlight evaluate RUN --data PATH --ci` measures them on your data."
    report = metrics.get("val")
    size = report.get("pictures") if isinstance(report, dict) else None
    where = f"{size:,} validation pictures" if isinstance(size, int) else "the validation split"
    rows = ["| figure | value | 95% interval |", "|---|---:|---:|"]
    rows += [f"| {one.name} | {one.value:.1f}{one.unit} | {_between(one)} |" for one in found]
    chosen = "The epoch was chosen on these pictures, so the figures are a little higher than on new ones."
    return "\n".join([*rows, "", f"Measured on {where}. {chosen}"])


def _between(figure: Figure) -> str:
    return "not measured" if figure.interval is None else f"{figure.interval[0]:.1f} to {figure.interval[1]:.1f}"


def _about_noise(noise: float | None) -> str:
    if noise is None:
        return "This method does not estimate how many training pairs are wrong; `matchlight audit` does."
    return f"While it learnt, the method estimated that {noise:.0%} of the training pairs do not belong together."


def _made_with(info: Mapping[str, object]) -> str:
    arguments = info.get("arguments")
    given = arguments if isinstance(arguments, dict) else {}
    lines = [f"- preset {_plain(info.get('preset'))}, seed {_plain(info.get('seed', 0))}"]
    for what in ("backbone", "sentences", "model"):
        named = given.get(what)
        if isinstance(named, str) and named:
            terms = f" ({CATALOGUE[named].licence})" if named in CATALOGUE else ""
            lines.append(f"- {what}: `{_plain(named)}`{terms}")
    return "\n".join(lines)


def _limits(info: Mapping[str, object]) -> str:
    arguments = info.get("arguments")
    reads = "sentences" if isinstance(arguments, dict) and arguments.get("sentences") else "words"
    unknown = (
        "It reads captions with the words of its training data; others are unknown to it." if reads == "words" else ""
    )
    likeness = (
        "It ranks by likeness: something is always first, also where nothing fits. It repeats what its data shows and "
        "leaves out, prejudice included; measure it on your own data before you rely on it."
    )
    return f"{unknown} {likeness}".strip()


def _plain(value: object) -> str:
    """A name out of the data on one line of Markdown, as text."""
    shown = re.sub(r"[\s|<>`\[\]]+", " ", str(value if value is not None else "")).strip()
    return shown[:LONGEST_NAME]
