"""Encoding reads what was asked for, and no more than a GPU's plans make worth while."""

from __future__ import annotations

import numpy as np
import pytest

from matchlight.core import IMAGE, Embeddings, Items
from matchlight.scoring.encode import encode
from tests.test_contract import ready


def test_few_pictures_are_read_as_few_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, network = ready("dual")
    matcher, seen = network.matcher, []
    original = matcher.embed

    def embed(side: str, items: Items) -> Embeddings:
        seen.append(len(items))
        return original(side, items)

    monkeypatch.setattr(matcher, "embed", embed)
    assert inputs.table.pixels
    assert len(encode(matcher, inputs.table, IMAGE, np.arange(7), batch=4)) == 7
    assert seen == [4, 3]
