"""Lantern: set embeddings, trust in pairs and a pretrained reader of captions, as one recipe.

Our own. Pictures and captions are small sets of vectors (`dive.py`), captions are read by a sentence encoder that knows
English already (`sentences=none` learns words from the data instead), and pairs are trusted as far as a first round
finds them clean (`ncr_plus.py`), by two networks whose scores are averaged. `preset=tuned` trains the picture network
along with the rest; frozen, its grids are read once and kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from matchlight.methods.dive import DUAL
from matchlight.methods.dive import SMALL as SMALL_SETS
from matchlight.methods.ncr_plus import DECIDES, recipe
from matchlight.training.recipes import Method

# what is pretrained moves slower than what begins at random
OWN = ("loss", "epochs")  # what trust in pairs decides for itself
SETS: dict[str, Any] = {name: value for name, value in DUAL.items() if name not in OWN}
SETS |= {"sentences": "minilm", "sentences_rate": 0.3, "drop_words": 0.1, "validate_every": 2}
TUNED: dict[str, Any] = {"finetune": True, "backbone_rate": 0.3, "freeze_epochs": 0, "epochs": 14}
SMALL: dict[str, Any] = {name: value for name, value in SMALL_SETS.items() if name not in OWN}
SMALL |= {"loss": "auto", "sentences": None, "epochs": 14}

METHODS = [
    Method(
        "lantern",
        partial(recipe, scorer="dive", epochs=15),
        paper="ours: DivE's sets, NCR+'s trust, a pretrained reader of captions",
        needs=("pairs", "regions"),
        over="scorer",
        decides=DECIDES,
        sets={"dive": SETS},
        small=SMALL,
        presets={"tuned": TUNED},
    )
]
