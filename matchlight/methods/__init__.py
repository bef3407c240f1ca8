"""One file per family, each of which reads like its paper and ends with its recipes."""

from matchlight.methods import vse
from matchlight.recipes import Method

RECIPES: dict[str, Method] = {method.name: method for family in (vse,) for method in family.METHODS}
