"""How a model reads pictures and captions is settled once and survives recipe.json."""

from __future__ import annotations

import pytest
import torch

from matchlight.inputs.prepare import View

RECIPES = [
    {"kind": "given"},
    {"kind": "given", "sentences": "minilm"},
    {"kind": "grid", "backbone": "lite0", "size": 160},
    {"kind": "pooled", "backbone": "timm:resnet50", "size": [224, 192], "boxes": True},
    {"kind": "pixels", "backbone": "lite1", "size": 96, "sentences": "minilm"},
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(map(str, recipe)))
def test_a_view_has_the_keys_that_recipe_json_always_had(recipe):
    written = View.from_json(recipe).to_json()
    assert written == recipe and list(written) == list(recipe)


def test_a_size_that_is_settled_stays():
    settled = View("grid").with_size(torch.device("cpu"))
    assert settled.size == 160 and settled.with_size(torch.device("cuda")) == settled
    assert View("given").with_size(torch.device("cpu")).size is None
