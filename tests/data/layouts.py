"""The folders people have, made small: `LAYOUTS` makes each, `said` is what `data info` says of it in a line.

    python -m tests.data.layouts

prints the table of docs/results/layouts.md; with PYTHONPATH at another checkout, what that one says.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
from PIL import Image

COUNT = 6


def blob(number: int, kind: str = "JPEG") -> bytes:
    noise = np.random.default_rng(number).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((32, 24), Image.Resampling.NEAREST).save(file, kind)
    return file.getvalue()


def caption(number: int) -> str:
    return f"a dog, number {number}"


def put(folder: Path, *places: str) -> Path:
    for number, place in enumerate(places):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(blob(number, "PNG" if place.endswith("png") else "JPEG"))
    return folder


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def names(prefix: str = "") -> list[str]:
    return [f"{prefix}{number}.jpg" for number in range(COUNT)]


def table(rows: Iterable[Iterable[object]], separator: str = ",") -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, lineterminator="\n").writerows(rows)
    return file.getvalue()


def rows(given: list[str]) -> list[list[object]]:
    return [[name, caption(number)] for number, name in enumerate(given)]


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return path


def photos(folder: Path) -> Path:
    put(folder, "a.JPG", "2019/a.jpg", "2019/rome/b.png", "2020/a.jpg", "__MACOSX/._a.jpg")
    (folder / "2019" / "cut.jpg").write_bytes(blob(9)[:99])
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "film.mov").write_bytes(b"x")
    return folder


def zipped(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for number, name in enumerate(names("album/")):
            archive.writestr(name, blob(number))
    return folder / "photos.zip"


def tarred(folder: Path) -> Path:
    return tar(folder / "photos.tar", {name: blob(number) for number, name in enumerate(names("album/"))})


def coco(folder: Path) -> Path:
    put(folder, *(f"{'train' if k < 4 else 'val'}2017/{k:012d}.jpg" for k in range(COUNT)))
    for split, numbers in (("train", range(4)), ("val", range(4, COUNT))):
        images = [{"id": k, "file_name": f"{k:012d}.jpg", "coco_url": "http://a.b/c"} for k in numbers]
        said = [{"id": 10 * k + j, "image_id": k, "caption": f"{caption(k)} {j}"} for k in numbers for j in range(5)]
        whole = {"info": {}, "licenses": [], "images": images, "annotations": said}
        write(folder / "annotations" / f"captions_{split}2017.json", json.dumps(whole))
        write(folder / "annotations" / f"instances_{split}2017.json", json.dumps({"images": images, "annotations": []}))
    return folder


def coco_file(folder: Path) -> Path:
    return coco(folder) / "annotations" / "captions_val2017.json"


def _list(folder: Path, name: str, pictures: bool = False) -> None:
    """img2dataset's list of what it fetched."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = [f"{k:09d}" for k in range(COUNT)]
    columns: dict[str, list[object]] = {
        "url": [f"http://a.b/{key}.jpg" for key in keys],
        "caption": [caption(k) for k in range(COUNT)],
        "key": list(keys),
        "status": ["success"] * COUNT,
    }
    if pictures:
        columns["jpg"] = [blob(k) for k in range(COUNT)]
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    write(folder / f"{name}_stats.json", json.dumps({"count": COUNT, "successes": COUNT}))


def _samples(prefix: str) -> dict[str, bytes]:
    found = {}
    for k in range(COUNT):
        about = {"url": f"http://a.b/{k:09d}.jpg", "caption": caption(k), "key": f"{k:09d}", "status": "success"}
        found[f"{prefix}{k:09d}.jpg"] = blob(k)
        found[f"{prefix}{k:09d}.txt"] = caption(k).encode()
        found[f"{prefix}{k:09d}.json"] = json.dumps(about).encode()
    return found


def fetched_files(folder: Path) -> Path:
    (folder / "00000").mkdir()
    for name, content in _samples("00000/").items():
        (folder / name).write_bytes(content)
    _list(folder, "00000")
    return folder


def fetched_shards(folder: Path) -> Path:
    tar(folder / "00000.tar", _samples(""))
    _list(folder, "00000")
    return folder


def fetched_parquet(folder: Path) -> Path:
    _list(folder, "00000", pictures=True)
    return folder


def texts(folder: Path) -> Path:
    put(folder, *names())
    for number in range(COUNT - 1):
        write(folder / f"{number}.txt", f"{caption(number)}\nthe same in other words {number}\n")
    return folder


def _in_splits(folder: Path, file: str, text: Callable[[list[list[object]]], str]) -> Path:
    for split, numbers in (("train", range(4)), ("validation", range(4, 5)), ("test", range(5, 6))):
        own = [[f"{k}.jpg", caption(k)] for k in numbers]
        for k in numbers:
            (folder / split).mkdir(exist_ok=True)
            (folder / split / f"{k}.jpg").write_bytes(blob(k))
        write(folder / split / file, text(own))
    return folder


def split_csv(folder: Path) -> Path:
    return _in_splits(folder, "metadata.csv", lambda own: table([["file_name", "text"], *own]))


def split_jsonl(folder: Path) -> Path:
    return _in_splits(
        folder, "metadata.jsonl", lambda own: "".join(json.dumps({"file_name": a, "text": b}) + "\n" for a, b in own)
    )


def one_csv_of_splits(folder: Path) -> Path:
    given = names("train/")[:4] + names("test/")[4:]
    write(put(folder, *given) / "metadata.csv", table([["file_name", "text"], *rows(given)]))
    return folder


def classes(folder: Path) -> Path:
    return put(folder, "train/cat/a.jpg", "train/dog/a.jpg", "train/dog/b.jpg", "test/cat/a.jpg", "test/dog/a.jpg")


def conceptual(folder: Path) -> Path:
    lines = "".join(f"{caption(k)}\thttp://a.b/{k}.jpg\n" for k in range(COUNT))
    return write(folder / "Train_GCC-training.tsv", lines)


def laion(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    put(folder, "pictures/0.jpg", "pictures/1.jpg")
    columns = {"URL": [f"http://a.b/{k}.jpg?w=9" for k in range(COUNT)], "TEXT": [caption(k) for k in range(COUNT)]}
    pq.write_table(pa.table(columns), folder / "part-00000.parquet")
    return folder


def clip_retrieval(folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir()
    for name in ("img_emb", "text_emb"):
        np.save(folder / name / f"{name}_0.npy", np.random.default_rng(0).normal(size=(COUNT, 8)).astype(np.float16))
    columns = {"image_path": [f"/data/{name}" for name in names()], "caption": [caption(k) for k in range(COUNT)]}
    pq.write_table(pa.table(columns), folder / "metadata" / "metadata_0.parquet")
    return folder


def flickr30k(folder: Path) -> Path:
    put(folder, *names("flickr30k_images/"))
    lines = [f"{k}.jpg| {j}| {caption(k)} {j} ." for k in range(COUNT) for j in range(5)]
    write(folder / "results.csv", "\n".join(["image_name| comment_number| comment", *lines]) + "\n")
    return folder


def token(folder: Path) -> Path:
    put(folder, *names("flickr30k-images/"))
    lines = [f"{k}.jpg#{j}\t{caption(k)} {j} ." for k in range(COUNT) for j in range(5)]
    write(folder / "results_20130124.token", "\n".join(lines) + "\n")
    return folder


def flickr8k(folder: Path) -> Path:
    put(folder, *names("Flicker8k_Dataset/"))
    for name in ("Flickr8k.token.txt", "Flickr8k.lemma.token.txt"):
        write(folder / name, "".join(f"{k}.jpg#{j}\t{caption(k)} {j}\n" for k in range(COUNT) for j in range(2)))
    for split, numbers in (("train", range(4)), ("dev", [4]), ("test", [5])):
        write(folder / f"Flickr_8k.{split}Images.txt", "".join(f"{k}.jpg\n" for k in numbers))
    return folder


def semicolons(folder: Path) -> Path:
    write(put(folder, *names()) / "Mappe1.csv", table([["image", "caption"], *rows(names())], ";"), "utf-8-sig")
    return folder


def utf16(folder: Path) -> Path:
    text = table([["image", "caption"], *rows(names())], "\t").replace("\n", "\r\n")
    write(put(folder, *names()) / "Mappe1.csv", text, "utf-16")
    return folder


def said_separator(folder: Path) -> Path:
    write(put(folder, *names()) / "Mappe1.csv", "sep=;\n" + table([["image", "caption"], *rows(names())], ";"))
    return folder


def no_header(folder: Path) -> Path:
    write(put(folder, *names("images/")) / "captions.tsv", table(rows(names()), "\t"))
    return folder


def table_a_split(folder: Path) -> Path:
    put(folder, *names("images/"))
    for split, part in (("train", slice(4)), ("val", slice(4, 5)), ("test", slice(5, 6))):
        write(folder / f"{split}.csv", table([["image", "caption"], *rows(names())[part]]))
    return folder


def saved(folder: Path) -> Path:
    import pyarrow as pa

    folder.mkdir(exist_ok=True)
    pictures = pa.array([{"bytes": blob(k), "path": f"{k}.jpg"} for k in range(COUNT)])
    whole = pa.table({"image": pictures, "caption": [caption(k) for k in range(COUNT)]})
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, whole.schema) as to,
    ):
        to.write_table(whole, max_chunksize=4)
    write(folder / "state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    write(folder / "dataset_info.json", "{}")
    return folder


def saved_splits(folder: Path) -> Path:
    write(folder / "dataset_dict.json", json.dumps({"splits": ["train", "test"]}))
    saved(folder / "train")
    saved(folder / "test")
    return folder


def two_layouts(folder: Path) -> Path:
    return write(texts(folder) / "captions.csv", table([["image", "caption"], *rows(names()[:3])])).parent


def same_names(folder: Path) -> Path:
    put(folder, "2019/a.jpg", "2020/a.jpg", "2020/b.jpg")
    return write(folder / "captions.csv", table([["image", "caption"], ["a.jpg", "which?"], ["b.jpg", "b"]])).parent


def nothing(folder: Path) -> Path:
    np.save(folder / "vectors.npy", np.ones((2, 3)))
    return write(folder / "notes.docx", "x").parent


def empty(folder: Path) -> Path:
    return folder


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "photos in folders, `.JPG`, hidden and broken files": photos,
    "`photos.zip`": zipped,
    "`photos.tar`": tarred,
    "COCO: `annotations/captions_train2017.json`, `train2017/`": coco,
    "COCO: the file `captions_val2017.json` itself": coco_file,
    "img2dataset, files: `00000/000000000.jpg` + `.txt` + `.json`": fetched_files,
    "img2dataset, webdataset: `00000.tar`, `00000.parquet`": fetched_shards,
    "img2dataset, parquet: the pictures in a column `jpg`": fetched_parquet,
    "`a.jpg` + `a.txt`, one text missing": texts,
    "`train/metadata.csv` with its pictures, `validation/`, `test/`": split_csv,
    "`train/metadata.jsonl` with its pictures, `validation/`, `test/`": split_jsonl,
    "`metadata.csv` that names `train/0.jpg`, `test/4.jpg`": one_csv_of_splits,
    "class folders: `train/dog/a.jpg`, `test/cat/a.jpg`": classes,
    "Conceptual Captions: caption, tab, address; no header, no pictures": conceptual,
    "LAION: Parquet with URL and TEXT, two of six pictures there": laion,
    "clip-retrieval: `img_emb/`, `text_emb/`, `metadata/`": clip_retrieval,
    "Flickr30k: `results.csv` with bars, `flickr30k_images/`": flickr30k,
    "Flickr30k: `results_20130124.token`": token,
    "Flickr8k: `Flickr8k.token.txt` and its lists of splits": flickr8k,
    "a spreadsheet's CSV: semicolons and a byte order mark": semicolons,
    "a spreadsheet's CSV: UTF-16 and tabs": utf16,
    "a spreadsheet's CSV: first line `sep=;`": said_separator,
    "a table of name and caption without a header": no_header,
    "`train.csv`, `val.csv`, `test.csv`, `images/`": table_a_split,
    "Hugging Face `save_to_disk`": saved,
    "Hugging Face `save_to_disk` with `train/` and `test/`": saved_splits,
    "`captions.csv` and `a.txt` beside `a.jpg`: two layouts": two_layouts,
    "`captions.csv` that names `a.jpg`, which is in two folders": same_names,
    "an array and a text document": nothing,
    "an empty folder": empty,
}


def said(path: Path, shown: str = "FOLDER") -> str:
    """What `matchlight data info` says, in a line."""
    from matchlight.core import BadInput
    from matchlight.data import formats

    try:
        with redirect_stderr(io.StringIO()):
            facts = formats.info(formats.read(path))
    except BadInput as error:
        return "refused: " + " ".join(str(error).replace(str(path), shown).split())
    except Exception as error:
        return f"internal failure: {type(error).__name__}"
    splits = ", ".join(f"{name} {split['pictures']}" for name, split in facts["splits"].items())
    parts = [f"{facts['format']}: {facts['pictures']} pictures ({splits}), {facts['captions']} captions"]
    parts += [f"{facts['labels']['classes']} labels"] if facts["labels"] else []
    parts += [f"{one['count']} {one['kind']}" for one in facts["problems"]]
    return "; ".join(parts)


def lines() -> dict[str, str]:
    """Layout -> what is said of it."""
    found = {}
    for name, make in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = said(make(Path(folder)))
    return found


if __name__ == "__main__":
    json.dump(lines(), sys.stdout, indent=1)
