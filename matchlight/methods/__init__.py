"""One file per family, each of which reads like its paper and ends with its recipes."""

from matchlight.methods import bfan, imram, scan, sgraf, vse, vsrn
from matchlight.recipes import Method

RECIPES: dict[str, Method] = {
    method.name: method for family in (bfan, imram, scan, sgraf, vse, vsrn) for method in family.METHODS
}
