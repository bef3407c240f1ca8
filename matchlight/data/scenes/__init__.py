"""Picture-book scenes: the embedded data set, drawn from emoji sprites, whose truth is known exactly.

`catalogue` and `places` say what there is, `compose` makes a scene, `render` paints it (with `canvas`, `backdrops`
and `sprites`), `grammar` writes captions with their meanings, `relevance` decides which captions fit which pictures,
`folder` writes it all down, `sheet` shows some of it. The terms they share are in `graph`.
"""

from __future__ import annotations

from matchlight.data.scenes.drawing import draw
from matchlight.data.scenes.sheet import contact_sheet

__all__ = ["contact_sheet", "draw"]
