"""Joint models compute what their own library computes; what cannot be read is one clear line."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Items, Matcher
from matchlight.inputs.joint_models import JointModel, joint_model
from matchlight.inputs.joint_models.picture_strips import split, strips
from matchlight.inputs.joint_models.shapes import open_clip_shape, shape_of
from matchlight.inputs.text import pad
from matchlight.methods.dual import Dual
from tests.inputs.weights.servers import Served, serving
from tests.joint import KINDS, LENGTH, SIDE, captions, make, pictures

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, folders: dict[str, Path]) -> JointModel:
    return joint_model(f"hf:{folders[request.param]}")


def network(model: JointModel) -> Matcher:
    return Dual(model=model.source.name).network().eval()


def texts(ids: list[list[int]]) -> Items:
    tokens, mask, _ = pad(ids)
    return Items(torch.from_numpy(tokens), torch.from_numpy(mask), torch.arange(len(ids)))


def seen(model: JointModel, count: int) -> Items:
    x = np.stack([model.preprocessing.pixels(one) for one in pictures(count)])
    return Items(torch.from_numpy(x), None, torch.arange(count))


def theirs(model: JointModel, clip: Path) -> SimpleNamespace:
    """Vectors and scores by transformers alone: its processor, its tokenizer, its model."""
    folder = clip if model.source.is_open_clip else model.source.folder
    own, reads = (kind.from_pretrained(folder) for kind in (transformers.AutoModel, transformers.AutoTokenizer))
    pixels = transformers.AutoImageProcessor.from_pretrained(folder)(images=pictures(7), return_tensors="pt")
    ids = reads(captions(9), padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        scores = own.eval()(input_ids=ids, **pixels).logits_per_image
        return SimpleNamespace(
            text=vectors(own.get_text_features(input_ids=ids)),
            image=vectors(own.get_image_features(**pixels)),
            scores=scores,
        )


def vectors(output: object) -> Tensor:
    """Unit vectors: version 4 gives a tensor, version 5 an object that holds it."""
    found = output if isinstance(output, Tensor) else output.pooler_output
    return found / found.norm(dim=-1, keepdim=True)


@torch.no_grad()
def test_vectors_and_scores_are_those_of_the_library(
    model: JointModel, folders: dict[str, Path], tmp_path: Path
) -> None:
    wanted, ours = theirs(model, make("clip", tmp_path)), network(model)
    images, words = ours.embed(IMAGE, seen(model, 7)), ours.embed(TEXT, texts(model.pieces.token_ids(captions(9))))
    even = [k for k, one in enumerate(pictures(7)) if model.preprocessing.even and not is_whole(one.size)]
    same = [k for k in range(7) if k not in even]  # open_clip takes the middle of the others half a pixel further
    assert len(same) >= 2
    assert_close(images.single[same], wanted.image[same], atol=1e-5, rtol=0)
    assert_close(words.single, wanted.text, atol=1e-5, rtol=0)
    scores = ours.score(images, words)
    assert_close(scores[same], wanted.scores[same], atol=1e-4, rtol=1e-5)
    assert_close(ours.score_pairs(images, words.take(slice(0, 7))), scores[:, :7].diagonal(), atol=1e-4, rtol=0)


def is_whole(size: tuple[int, int]) -> bool:
    """Whether the middle of a picture of this size, its shorter side brought to SIDE, lies on a pixel."""
    return (int(SIDE * max(size) / min(size)) - SIDE) % 2 == 0


@pytest.mark.parametrize(("wide", "left"), [(31, 4), (33, 4), (35, 6), (37, 6)])  # 3.5, 4.5, 5.5, 6.5
def test_open_clip_rounds_the_middle_of_a_picture_to_even(folders: dict[str, Path], wide: int, left: int) -> None:
    made = joint_model(f"hf:{folders['open_clip']}").preprocessing
    picture = Image.fromarray(np.tile(np.arange(wide, dtype=np.uint8)[None, :, None], (SIDE, 1, 3)))
    assert made.pixels(picture)[0, 0, 0] == left


@torch.no_grad()
def test_neither_the_batch_nor_padding_changes_a_vector(model: JointModel) -> None:
    ours, ids = network(model), model.pieces.token_ids(captions(9))
    together = ours.embed(TEXT, texts(ids)).single
    alone = torch.cat([ours.embed(TEXT, texts([one])).single for one in ids])
    wide = texts(ids).x.new_zeros(len(ids), 5)
    padded = Items(torch.cat([texts(ids).x, wide], 1), torch.cat([texts(ids).mask, wide.bool()], 1), torch.arange(9))
    assert_close(alone, together, atol=1e-5, rtol=0)
    assert_close(ours.embed(TEXT, padded).single, together, atol=1e-5, rtol=0)
    pixels = seen(model, 5)
    apart = torch.cat([ours.embed(IMAGE, pixels.take(slice(k, k + 1))).single for k in range(5)])
    assert_close(apart, ours.embed(IMAGE, pixels).single, atol=1e-5, rtol=0)


def test_a_siglip_caption_is_always_filled_up_and_in_small_letters(folders: dict[str, Path]) -> None:
    pieces = joint_model(f"hf:{folders['siglip']}").pieces
    assert pieces.token_ids(["a Dog"]) == pieces.token_ids(["a dog"]) == [[2, 3, *[1] * (LENGTH - 2)]]


def test_pieces_are_shown_as_their_letters(folders: dict[str, Path]) -> None:
    for kind in ("clip", "siglip"):
        pieces = joint_model(f"hf:{folders[kind]}").pieces
        assert [one for one in pieces.shown(pieces.token_ids(["red dog"])[0]) if one] == ["red", "dog"]


@torch.no_grad()
def test_a_siglip_caption_that_lost_its_filling_gets_it_back(folders: dict[str, Path]) -> None:
    model = joint_model(f"hf:{folders['siglip']}")
    ours, (ids,) = network(model), model.pieces.token_ids(["a dog"])
    assert_close(ours.embed(TEXT, texts([ids[:3]])).single, ours.embed(TEXT, texts([ids])).single)


def test_a_strip_holds_a_picture_in_its_own_shape() -> None:
    made = strips(joint_preprocessing(), 8, 12)
    (picture,) = pictures(1)
    picture = picture.resize((60, 20))
    pixels, sides = split(torch.from_numpy(made.pixels(picture))[None])
    assert sides.tolist() == [[2, 6]] and pixels.shape == (1, 3, 8, 96)
    whole = np.asarray(picture.resize((48, 16), 2)).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels[0, :, :, 56:64], whole[:, 8:16, 8:16])  # the eighth patch: row 1, column 1


def joint_preprocessing():  # noqa: ANN201 - a Preprocessing
    from matchlight.inputs.preprocessing import Preprocessing

    return Preprocessing((8, 8))


def test_configurations_of_old_mean_the_largest_id_as_the_end_of_a_text() -> None:
    assert shape_of({"model_type": "clip", "text_config": {"eos_token_id": 2}}).text.end is None
    assert shape_of({"model_type": "clip", "text_config": {"eos_token_id": 5}}).text.end == 5


def test_what_a_configuration_leaves_out_is_its_librarys_default() -> None:
    for kind in ("CLIP", "Siglip", "Siglip2"):
        said = json.loads(getattr(transformers, f"{kind}Config")().to_json_string(use_diff=False))
        assert shape_of({"model_type": kind.lower()}) == shape_of(said)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert"}, "'bert' is no joint model"),
        ({"model_type": "clip", "vision_config": {"hidden_act": "relu"}}, "activation 'relu'"),
        ({"model_type": "clip", "text_config": {"num_attention_heads": 7}}, "7 heads"),
        ({"model_type": "siglip", "vision_config": {"hidden_size": 96}}, "96 dimensions and its captions 768"),
        ({"model_type": "clip", "text_config": {"vocab_size": "many"}}, "vocab_size='many'"),
        ({"model_type": "siglip", "vision_config": {"vision_use_head": False}}, "no pooling head"),
        ({"model_type": "siglip2", "vision_config": {"num_patches": 7}}, "num_patches=7"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_line(config: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        shape_of(config)


@pytest.mark.parametrize(
    ("seen", "words"),
    [({"timm_model_name": "vit"}, "timm_model_name=vit"), ({"layers": [3, 4]}, "no vision transformer")],
)
def test_open_clip_models_of_other_kinds_are_one_line(seen: dict[str, object], words: str) -> None:
    plain = {"width": 64, "layers": 2, "patch_size": 8}
    model = {"embed_dim": 8, "vision_cfg": {**plain, **seen}, "text_cfg": {"width": 64, "layers": 2, "heads": 1}}
    with pytest.raises(BadInput, match=words):
        open_clip_shape({"model_cfg": model})


# ---- files that are not as they should be ----------------------------------------------------------------------------


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_pickled_weights_are_read_without_running_them(folders: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = copied(folders["clip"], tmp_path / "clip")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    wanted = network(joint_model(f"hf:{folder}")).state_dict()
    (folder / "model.safetensors").unlink()
    assert_close(network(joint_model(f"hf:{folder}")).state_dict(), wanted)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("it ran",)


def test_a_pickle_that_would_run_something_is_one_line(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(folders["clip"], tmp_path / "clip")
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"weight": Trap()}, protocol=2))
        file.writestr("archive/version", "3\n")
    with pytest.raises(BadInput, match="pytorch_model.bin"):
        network(joint_model(f"hf:{folder}"))
    assert "it ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
        (lambda folder: (folder / "config.json").unlink(), "neither config.json nor"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), "not a JSON object"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "no preprocessor_config.json"),
        (lambda folder: half(folder / "model.safetensors"), "not a readable safetensors file"),
        (lambda folder: said(folder, projection_dim=21), r"is \(20, 32\), and its configuration asks for \(21, 32\)"),
        (lambda folder: said(folder, vision_config={"patch_size": 4, "image_size": 24}), "configuration asks for"),
    ],
)
def test_a_folder_that_is_not_whole_is_one_line(spoil, words: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["clip"], tmp_path / "clip")
    spoil(folder)
    with pytest.raises(BadInput, match=words) as told:
        network(joint_model(f"hf:{folder}"))
    assert "\n" not in str(told.value)


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def said(folder: Path, **more: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    parts = {name: {**config[name], **value} if isinstance(value, dict) else value for name, value in more.items()}
    (folder / "config.json").write_text(json.dumps({**config, **parts}))


def test_a_missing_tokenizer_is_one_line(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["siglip"], tmp_path / "siglip")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="its tokenizer cannot be read"):
        joint_model(f"hf:{folder}").pieces.token_ids(["a dog"])


def test_a_preprocessor_that_makes_another_size_than_the_towers_see_is_one_line(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(folders["siglip"], tmp_path / "siglip")
    config = json.loads((folder / "preprocessor_config.json").read_text()) | {"size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="32 x 32 pixels, and its towers 24 x 24"):
        joint_model(f"hf:{folder}").preprocessing  # noqa: B018 - asking is enough


# ---- the hub ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201 - what is served
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        yield served


def offer(served: Served, name: str, folder: Path) -> None:
    """A repository of the hub with a folder's files."""
    names = [{"rfilename": path.name} for path in folder.iterdir()]
    about = {"id": name, "sha": "0" * 40, "siblings": names, "private": False, "tags": []}
    served.files[f"/api/models/{name}"] = json.dumps(about).encode()
    for path in folder.iterdir():
        served.files[f"/{name}/resolve/main/{path.name}"] = path.read_bytes()


def test_a_model_of_the_hub_is_fetched_once(hub: Served, folders: dict[str, Path]) -> None:
    offer(hub, "some/clip", folders["clip"])
    first = joint_model("hf:some/clip")
    asked = len(hub.asked)
    assert joint_model("hf:some/clip").source.folder == first.source.folder and len(hub.asked) == asked
    assert network(first).state_dict().keys() == network(joint_model(f"hf:{folders['clip']}")).state_dict().keys()


def test_code_that_a_repository_brings_is_not_fetched(hub: Served, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["clip"], tmp_path / "clip")
    (folder / "modeling.py").write_text("raise SystemExit")
    offer(hub, "some/clip", folder)
    assert not (joint_model("hf:some/clip").source.folder / "modeling.py").exists()
    assert not [path for _, path, _ in hub.asked if path.endswith(".py")]


def test_a_wrong_name_is_one_line(hub: Served) -> None:
    hub.codes["/api/models/some/clop"] = 401  # what the hub answers to strangers
    for name, words in (("hf:some/clop", "check the spelling"), ("hf:a/b/c", "check the spelling"), ("hf:", "hf:NAME")):
        with pytest.raises(BadInput, match=words):
            joint_model(name)
    for name in ("hf:", "clip", "hf:a/b/c", "hf:some/clop"):
        with pytest.raises(BadInput) as told:
            joint_model(name)
        assert "\n" not in str(told.value)


def test_a_gated_model_is_one_line(hub: Served, folders: dict[str, Path]) -> None:
    offer(hub, "some/clip", folders["clip"])
    hub.codes["/some/clip/resolve/main/config.json"] = 403
    with pytest.raises(BadInput, match="hf:some/clip is gated"):
        joint_model("hf:some/clip")


def test_half_a_download_is_one_line_and_the_next_try_goes_on(hub: Served, folders: dict[str, Path]) -> None:
    offer(hub, "some/clip", folders["clip"])
    hub.codes["/some/clip/resolve/main/model.safetensors"] = 400
    with pytest.raises(BadInput, match="hf:some/clip"):
        joint_model("hf:some/clip")
    del hub.codes["/some/clip/resolve/main/model.safetensors"]
    assert joint_model("hf:some/clip").source.weights[0].stat().st_size > 1000


def test_no_network_is_one_line(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BadInput, match="not on this machine, and the hub cannot be reached") as told:
        joint_model("hf:some/clip")
    assert "\n" not in str(told.value) and not hub.asked


def test_weights_in_several_files_are_read_together(folders: dict[str, Path], tmp_path: Path) -> None:
    own = transformers.AutoModel.from_pretrained(folders["clip"])
    folder = copied(folders["clip"], tmp_path / "clip")
    (folder / "model.safetensors").unlink()
    own.save_pretrained(folder, max_shard_size="60KB")
    found = joint_model(f"hf:{folder}")
    assert len(found.source.weights) > 1
    assert_close(network(found).state_dict(), network(joint_model(f"hf:{folders['clip']}")).state_dict())


def test_a_list_of_shards_names_files_of_its_own_folder_alone(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["clip"], tmp_path / "clip")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../clip/x.safetensors"}}))
    with pytest.raises(BadInput, match="not a list of safetensors files"):
        joint_model(f"hf:{folder}")
