"""The runs that DivE's figures look at: one that is named, or DivE trained here."""

from __future__ import annotations

from matchlight.core import BadInput, Matcher
from matchlight.parts.set_similarities import SetSimilarity
from matchlight.reproduce.exhibits import MethodSetup, Paths, Work
from matchlight.reproduce.ncr_runs import one_path
from matchlight.runs.folder import Run

PAPER = "Improving Cross-Modal Retrieval with Set of Diverse Embeddings (CVPR 2023)"
QUICK = {"epochs": 3}
TITLES = {"mil": "best pair (MIL)", "mp": "match probability (MP)", "smooth_chamfer": "smooth-Chamfer"}
DIVE = MethodSetup("DivE", "dive", quick=QUICK)


def asked_run(work: Work, run: Paths | None) -> Run | None:
    """A run that is named, if one is; its items must be sets of vectors."""
    path = one_path(run, work.name)
    if path is None:
        return None
    work.check_idle()
    loaded = Run.load(path, device=work.device)
    if not isinstance(first_member(loaded).similarity, SetSimilarity):
        raise BadInput(f"{path}: {loaded.method} gives one vector an item; {work.name} looks at sets, as dive's")
    return loaded


def first_member(run: Run) -> Matcher:
    """The model, or the first of an ensemble."""
    member = run.matcher.each()[0]
    return member
