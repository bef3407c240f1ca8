"""Do joint models compute what transformers computes, with its versions 4 and 5? One environment each, made here.

    python benchmarks/joint_model_versions.py --keep versions

Each environment makes tiny random CLIP, SigLIP and SigLIP2 models and an open_clip folder, saves them as its version
does, and compares vectors and scores with its own; then it reads the files that the other version has saved. Packages
other than transformers and what it asks for come from the environment that runs this.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

VERSIONS = {"4": "transformers>=4.57,<5", "5": "transformers>=5,<6"}
ROOT = Path(__file__).parents[1]
ALLOWED = 1e-5  # largest difference of a vector's numbers
BATCHES = (1, 3, 9)


def environment(folder: Path, wanted: str) -> Path:
    """A virtual environment with that version beside the packages of this one; its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        place = next((folder / "lib").glob("python*/site-packages"))
        (place / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run([python, "-m", "pip", "install", "-q", "--ignore-installed", "--no-deps", wanted], check=True)
        needs = _asked(python)
        subprocess.run([python, "-m", "pip", "install", "-q", "--ignore-installed", "--no-deps", *needs], check=True)
    return python


def _asked(python: Path) -> list[str]:
    """What this version of transformers asks for that must fit it: its tokenizers and the hub's client."""
    code = "from importlib.metadata import requires; print('\\n'.join(requires('transformers')))"
    listed = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    plain = [line for line in listed if "extra ==" not in line]
    return [line for line in plain if line.startswith(("tokenizers", "huggingface"))]


def compare(own: Path, others: list[Path]) -> dict[str, object]:
    """Largest differences between Matchlight and the transformers of this environment, by kind of model."""
    import transformers

    from tests.joint import KINDS, make

    transformers.utils.logging.set_verbosity_error()
    for kind in (*KINDS, "plain_clip"):
        if not (own / kind).exists():
            make("clip" if kind == "plain_clip" else kind, own / kind)
    found: dict[str, object] = {"transformers": transformers.__version__}
    for folder in (own, *others):
        found[folder.name] = {kind: differences(folder, kind) for kind in KINDS}
    return found


def differences(folder: Path, kind: str) -> dict[str, float]:
    import numpy as np
    import torch
    import transformers

    from matchlight.core import IMAGE, TEXT, Items
    from matchlight.inputs.joint_models import joint_model
    from matchlight.inputs.text import pad
    from matchlight.methods.dual import Dual
    from tests.joint import LENGTH, SIDE, captions, pictures

    name = f"hf:{folder / kind}"
    model, ours = joint_model(name), Dual(model=name).network().eval()
    library = folder / ("plain_clip" if kind == "open_clip" else kind)
    theirs = transformers.AutoModel.from_pretrained(library).eval()
    shown = pictures(9) if kind != "open_clip" else [one.resize((SIDE, SIDE)) for one in pictures(9)]  # no half pixels
    pixels = transformers.AutoImageProcessor.from_pretrained(library, use_fast=False)(images=shown, return_tensors="pt")
    reads = transformers.AutoTokenizer.from_pretrained(library)
    written = reads(captions(9), padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")

    def unit(output: object) -> torch.Tensor:
        found = output if isinstance(output, torch.Tensor) else output.pooler_output
        return found / found.norm(dim=-1, keepdim=True)

    seen = torch.from_numpy(np.stack([model.preprocessing.pixels(one) for one in shown]))
    ids = model.pieces.token_ids(captions(9))
    worst = {"image": 0.0, "text": 0.0, "score": 0.0}
    with torch.no_grad():
        wanted = unit(theirs.get_image_features(**pixels)), unit(theirs.get_text_features(written["input_ids"]))
        scores = theirs(input_ids=written["input_ids"], **pixels).logits_per_image
        for size in BATCHES:
            parts = [slice(start, start + size) for start in range(0, 9, size)]
            images = torch.cat([ours.embed(IMAGE, Items(seen[p], None, torch.arange(9)[p])).vectors for p in parts])
            texts = []
            for p in parts:
                tokens, mask, _ = (torch.from_numpy(part) for part in pad([*ids[p], ids[0] + [0] * size]))
                texts.append(ours.embed(TEXT, Items(tokens[:-1], mask[:-1], torch.arange(9)[p])).vectors)
            found = images[:, 0], torch.cat(texts)[:, 0]
            worst["image"] = max(worst["image"], float((found[0] - wanted[0]).abs().max()))
            worst["text"] = max(worst["text"], float((found[1] - wanted[1]).abs().max()))
            matrix = ours.similarity.scaled(found[0] @ found[1].T)
            worst["score"] = max(worst["score"], float((matrix - scores).abs().max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the environments; without it they are thrown away")
    parser.add_argument("--here", type=Path, nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(compare(asked.here[0], asked.here[1:])))
        return
    with tempfile.TemporaryDirectory() as scratch:
        place = asked.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        reports = [_run(place, version, done) for version, done in (("4", []), ("5", ["4"]), ("4", ["5"]))]
    print(json.dumps(reports[1:], indent=2))
    every = [
        value for report in reports for made in report.values() if isinstance(made, dict) for value in made.values()
    ]
    worst = max(max(one["image"], one["text"]) for one in every)
    print(f"largest difference of a vector: {worst:.1e}")
    sys.exit(worst > ALLOWED)


def _run(place: Path, version: str, others: list[str]) -> dict[str, object]:
    python = environment(place / f"env{version}", VERSIONS[version])
    folders = [str(place / f"made_by_{one}") for one in (version, *others)]
    command = [str(python), __file__, "--here", *folders]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
