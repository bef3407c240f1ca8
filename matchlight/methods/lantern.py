"""Lantern: set embeddings, trust in pairs and a pretrained reader of captions, as one recipe.

Our own. Pictures and captions are small sets of vectors (`dive.py`), captions are read by a sentence encoder that knows
English already (`sentences=none` learns words from the data instead), and pairs are trusted as far as a first round
finds them clean (`ncr_plus.py`), by two networks whose scores are averaged. `preset=tuned` trains the picture network
along with the rest; frozen, its grids are read once and kept. `preset=tuned_vit --from` a frozen run trains a vision
transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from matchlight.methods.dive import DUAL, DivE
from matchlight.methods.dive import SMALL as SMALL_SETS
from matchlight.methods.ncr_plus import NCRPlus
from matchlight.training.arguments import COSINES, Arguments, Count, Settings, Value
from matchlight.training.registry import Method

OWN = ("loss", "epochs")  # what trust in pairs decides for itself
SETS: dict[str, Value] = {name: value for name, value in DUAL.items() if name not in OWN}
# what is pretrained moves slower than what begins at random
SETS |= {"sentences": "minilm", "sentences_rate": 0.15, "drop_words": 0.1, "validate_every": 2}
# projections begin where canonical correlation ends (where captions come pretrained)
SETS |= {"projections": None, "rate": 1e-3, "dim": 512, "similarity": "mil"}  # mil: sets are as near as their best pair
JOINT_SETS: dict[str, Value] = {**COSINES, "sets": 4, "validate_every": 2}
TUNED: dict[str, Value] = {"finetune": True, "backbone_rate": 0.3, "freeze_epochs": 0, "epochs": 14}
# a vision transformer, begun --from a frozen run: heads that know what to ask for, trust in the pairs that is known
TUNED_VIT: dict[str, Value] = {"finetune": True, "freeze_epochs": 0, "backbone_rate": 2.5, "layer_decay": 0.8}
TUNED_VIT |= {"rate": 3e-4, "crop": 0.5, "epochs": 7}
SMALL: dict[str, Value] = {name: value for name, value in SMALL_SETS.items() if name not in OWN}
SMALL |= {"loss": "auto", "similarity": "smooth_chamfer", "sentences": None, "epochs": 14}


@dataclass(frozen=True, kw_only=True)
class Lantern(NCRPlus):
    """NCR+ over DivE's sets, or with `scorer=dual` over sets that slots find among a joint model's states."""

    open_base: ClassVar[bool] = False
    base_defaults: ClassVar[Mapping[str, Settings]] = {"dive": SETS, "dual": JOINT_SETS}

    scorer: Arguments = field(default_factory=DivE)
    epochs: Count = 15


METHODS = [
    Method(
        "lantern",
        Lantern,
        paper="ours: DivE's sets, NCR+'s trust, a pretrained reader of captions",
        needs=("pairs", "regions"),
        small=SMALL,
        presets={"tuned": TUNED, "tuned_vit": TUNED_VIT},
    )
]
