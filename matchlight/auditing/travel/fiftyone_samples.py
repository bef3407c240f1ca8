"""An audit as a FiftyOne dataset: a sample a pair, tagged "suspect" and by reason, with scores and suggestions.

Needs the extra `fiftyone`, and the MongoDB that FiftyOne brings or is told of. `write_fiftyone` leaves a folder in
FiftyOne's own layout, pictures included, which `fo.Dataset.from_dir` opens anywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matchlight.auditing.travel.audited_rows import AuditedRows, open_audit
from matchlight.core import BadInput
from matchlight.data.findings import Finding
from matchlight.data.formats.export import copy_pictures

if TYPE_CHECKING:
    import fiftyone as fo

SUSPECT = "suspect"


def to_fiftyone(
    audit: str | Path,
    pictures: str | Path,
    *,
    name: str | None = None,
    rows: str = "all",
    data: str | Path | None = None,
) -> fo.Dataset:
    """A dataset in FiftyOne's data base; the pictures are copied into the new folder `pictures`."""
    audited = open_audit(audit, data, rows=rows)
    folder = Path(pictures).resolve()
    if folder.exists():
        raise BadInput(f"{pictures}: is there already; give a new folder for the pictures")
    folder.parent.mkdir(parents=True, exist_ok=True)
    return _dataset(audited, folder, name)


def write_fiftyone(audited: AuditedRows, folder: Path) -> None:
    """data/, metadata.json and samples.json, by FiftyOne itself."""
    dataset = _dataset(audited, folder / "data", None)
    try:
        kind = _package().types.FiftyOneDataset
        dataset.export(str(folder), dataset_type=kind, export_media=False, rel_dir=str(folder), progress=False)
    finally:
        dataset.delete()


def _dataset(audited: AuditedRows, folder: Path, name: str | None) -> fo.Dataset:
    package = _package()
    if audited.pairs.pictures is None:
        raise BadInput(f"{audited.pairs.root}: holds features, and FiftyOne shows pictures")
    try:
        dataset = package.Dataset(name)
    except package.core.config.FiftyOneConfigError as problem:
        raise BadInput(
            f"FiftyOne found no MongoDB ({str(problem).splitlines()[0]}); FIFTYONE_DATABASE_URI names one"
        ) from None
    places = copy_pictures(audited.pairs, folder)
    paths = [str(folder / name.removeprefix("images/")) for name in places]
    samples = [_sample(package, one, paths[audited.pairs.picture[one.row]]) for one in audited.findings]
    dataset.add_samples(samples, progress=False)
    return dataset


def _sample(package: fo, one: Finding, path: str) -> fo.Sample:
    tags = [tag for tag in (SUSPECT if one.suspect else "", one.split) if tag]
    sample = package.Sample(filepath=path, tags=tags)
    values = {"row": one.row, "caption": one.caption, "score": one.score, "reason": one.reason or None}
    values |= {"better_image": one.better_image, "better_image_support": one.better_image_support}
    values |= {"better_caption": one.better_caption, "better_caption_support": one.better_caption_support}
    for name, value in values.items():
        sample[name] = value
    if one.labels is not None:
        sample["label"] = package.Classification(label=one.labels.label)
        if one.labels.side:
            sample["likely_label"] = package.Classification(label=one.labels.likely)
    return sample


def _package() -> fo:
    try:
        import fiftyone
    except ImportError:
        raise BadInput("FiftyOne is not installed: pip install 'matchlight[fiftyone]'") from None
    return fiftyone
