"""Picture-book scenes: the embedded data set, drawn from emoji sprites, whose truth is known exactly.

In reading order:

    graph.py            the scene graph, whose terms the others share
    things.py           the things a scene can hold
    places.py           where scenes happen
    compose.py          which things meet where, how many, how big
    render.py           a scene painted, with canvas.py, backdrops.py and sprites.py
    grammar.py          captions with their meanings
    exact_relevance.py  which captions fit which pictures
    drawing.py          a whole data set written into a folder
    sheet.py            some of its scenes on one page
"""

from __future__ import annotations

from matchlight.data.scenes.drawing import draw
from matchlight.data.scenes.sheet import contact_sheet

__all__ = ["contact_sheet", "draw"]
