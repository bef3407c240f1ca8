"""One file per family, each of which reads like its paper and ends with its recipes."""

from matchlight.methods import (
    aoq,
    bfan,
    dccae,
    deep_sm,
    dive,
    dscmr,
    fgcrossnet,
    imram,
    lantern,
    mrl,
    ncr,
    ncr_plus,
    pcme,
    pvse,
    scan,
    sdml,
    semantic_sharing,
    sgraf,
    vse,
    vsrn,
)
from matchlight.training.recipes import Method

FAMILIES = (
    aoq,
    bfan,
    dccae,
    deep_sm,
    dive,
    dscmr,
    fgcrossnet,
    imram,
    lantern,
    mrl,
    ncr,
    ncr_plus,
    pcme,
    pvse,
    scan,
    sdml,
    semantic_sharing,
    sgraf,
    vse,
    vsrn,
)
RECIPES: dict[str, Method] = {method.name: method for family in FAMILIES for method in family.METHODS}
