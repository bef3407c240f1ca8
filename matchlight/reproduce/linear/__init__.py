"""Linear baselines of MRL's main table: a projection a side, found in closed form; each file is one idea.

They are lines of a table, not methods: nothing is trained step by step, saved or indexed.

    views.py   training items of both sides, their covariances and scatters, and `Maps`, what a fit gives
    mcca.py    MCCA: sides that correlate; labels are not read
    pls.py     PLS: sides that vary together; labels are not read
    gma.py     GMA: classes apart on each side, and their means in the same place on both
    mvda.py    MvDA: classes apart where both sides are one cloud
"""

from __future__ import annotations

from collections.abc import Callable

from matchlight.reproduce.linear.gma import gma
from matchlight.reproduce.linear.mcca import mcca
from matchlight.reproduce.linear.mvda import mvda
from matchlight.reproduce.linear.pls import pls
from matchlight.reproduce.linear.views import Maps, Views

__all__ = ["LINEAR", "Maps", "Views", "gma", "mcca", "mvda", "pls"]

LINEAR: dict[str, Callable[[Views], Maps]] = {"MCCA": mcca, "PLS": pls, "GMA": gma, "MvDA": mvda}
