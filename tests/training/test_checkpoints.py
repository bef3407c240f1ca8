"""Files of ours: trees of tensors come back as they went, and never half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from matchlight import files
from matchlight.core import BadInput
from matchlight.training import checkpoints


def test_a_tree_comes_back_as_it_went(tmp_path: Path) -> None:
    tree = {
        "numbers": [1, 2.5, None, True, "word"],
        "by number": {0: {"step": torch.tensor(3.0)}, 7: torch.arange(4)},
        "pair": (1, np.arange(3, dtype=np.float16)),
        "empty": {},
    }
    checkpoints.save_tree(tmp_path / "tree", tree)
    back = checkpoints.load_tree(tmp_path / "tree")
    assert back["numbers"] == tree["numbers"] and back["empty"] == {}
    assert back["by number"][0]["step"] == 3.0 and back["by number"][7].tolist() == [0, 1, 2, 3]
    assert isinstance(back["pair"], tuple) and back["pair"][1].dtype == np.float16


def test_an_optimiser_survives_without_pickle(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(3))
    optimiser = torch.optim.Adam([weight])
    weight.sum().backward()
    optimiser.step()
    checkpoints.save_tree(tmp_path / "tree", {"optimiser": optimiser.state_dict()})
    other = torch.optim.Adam([torch.nn.Parameter(torch.zeros(3))])
    other.load_state_dict(checkpoints.load_tree(tmp_path / "tree")["optimiser"])
    old, new = optimiser.state_dict(), other.state_dict()
    assert old["param_groups"] == new["param_groups"]
    assert torch.equal(old["state"][0]["exp_avg"], new["state"][0]["exp_avg"])


def test_a_file_that_is_none_of_ours_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"no checkpoint at all")
    with pytest.raises(BadInput, match="junk"):
        checkpoints.load_tree(tmp_path / "junk")
    with pytest.raises(BadInput, match="junk"):
        checkpoints.load_weights(tmp_path / "junk")


def test_nothing_half_written_is_left_behind(tmp_path: Path) -> None:
    checkpoints.save_tree(tmp_path / "state" / "latest", {"a": torch.ones(2)})
    files.write_json(tmp_path / "state" / "j.json", {"b": 1})
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == ["j.json", "latest"]
