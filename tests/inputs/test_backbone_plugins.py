"""Backbones: another package adds one by a class in a file, and every command that takes backbone=NAME knows it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import tiny_pairs

from matchlight.core import BadInput
from matchlight.data.formats import BytePictures
from matchlight.inputs import features
from matchlight.inputs.backbones import backbone
from matchlight.inputs.prepare import View, prepare

STRIPES = """
import torch.nn.functional as F
from matchlight.inputs.backbones.base import Backbone

class Stripes(Backbone):
    name, dim = "stripes", 3

    def __init__(self):
        super().__init__(mean=(0.0,) * 3, std=(255.0,) * 3)

    def grid(self, pixels):
        return F.avg_pool2d(pixels, 16).flatten(2).transpose(1, 2)

class Scaled(Stripes):
    takes = "SCALE"

    def __init__(self, scale):
        super().__init__()
        self.name, self.scale = f"scaled:{scale}", float(scale)

    def grid(self, pixels):
        return super().grid(pixels) * self.scale
"""
ENTRIES = {"matchlight.backbones": {"stripes": "stripes:Stripes", "scaled": "stripes:Scaled", "odd": "stripes:F"}}


@pytest.fixture
def stripes(install_plugin) -> None:
    install_plugin("stripes", STRIPES, ENTRIES)


def test_a_backbone_of_another_package_is_used_by_its_name(stripes):
    network = backbone("stripes", 32)
    assert network.cells() == 4 and network.dim == 3
    assert torch.allclose(network(torch.full((1, 3, 32, 32), 255.0)), torch.ones(1, 4, 3))
    assert backbone("scaled:2")(torch.full((1, 3, 16, 16), 255.0)).max() == 2


def test_features_and_training_inputs_come_from_it(stripes):
    from dataclasses import replace
    from io import BytesIO

    from PIL import Image

    plain = tiny_pairs()
    file = BytesIO()
    Image.new("RGB", (20, 20), (255, 0, 0)).save(file, "PNG")
    pictures = BytePictures(plain.names, [file.getvalue()] * len(plain.names))
    pairs = replace(plain, features=None, pictures=pictures)
    store = features.extract(pairs, backbone="stripes", size=32)
    assert store.shape == (len(plain.names), 4, 3)
    assert np.allclose(store.gather(np.arange(2)), [1, 0, 0])
    ready = prepare(pairs, View("pooled", "scaled:3"), device=torch.device("cpu"))
    assert ready.view.size == 160 and ready.sizes.image_dim == 3
    assert ready.table.items("image", np.arange(1)).x.tolist() == [[3, 0, 0]]


@pytest.mark.parametrize("name", ["resnet", "stripes:2", "scaled", "timm", "hf:", "lite0:big"])
def test_a_name_that_is_none_says_which_there_are(stripes, name):
    known = "lite0, lite1, lite2, tinyvit-5m, starter-small, timm:NAME, hf:NAME"
    with pytest.raises(BadInput, match=f"is no backbone; known: {known}") as told:
        backbone(name)
    assert "stripes, scaled:SCALE" in str(told.value)


def test_a_plug_in_that_is_no_backbone_is_one_line(stripes):
    with pytest.raises(BadInput, match="the plug-in 'odd' of matchlight.backbones is no Backbone class"):
        backbone("odd")
