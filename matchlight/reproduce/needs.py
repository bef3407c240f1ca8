"""What each exhibit needs, in a line: the data, and what is trained or given; in brackets, the data of the paper."""

from __future__ import annotations

_LABELS = "labels, splits train and test"
_WORDS = "captions, splits train and test"

NEEDS = {
    "mrl-pr": f"{_LABELS}; trains seven methods a seed [Wikipedia, INRIA-Websearch, NUS-WIDE, XMediaNet]",
    "mrl-map": f"{_LABELS}; trains 28 runs a seed [Wikipedia, INRIA-Websearch, NUS-WIDE, XMediaNet]",
    "mrl-convergence": f"{_LABELS}, val; trains two runs a seed [INRIA-Websearch]",
    "mrl-tsne": f"{_LABELS}; trains six methods [Wikipedia]",
    "mrl-clusters": f"{_LABELS}, at least four classes; trains two runs [Wikipedia]",
    "sharing-lambda": f"{_LABELS}, words or regions; trains six runs a seed and data set [FLICKR25K, NUS-WIDE, COCO]",
    "sharing-f1": f"{_LABELS}, val for tuned thresholds; trains four runs a seed and set [FLICKR25K, NUS-WIDE, COCO]",
    "sharing-consistency": f"{_LABELS}, val; trains two runs a seed [FLICKR25K]",
    "sharing-failures": f"{_LABELS}, pictures to show; trains one run",
    "aoq-batch": f"{_WORDS}; trains the base twice and a second round, a seed [COCO 1K]",
    "aoq-sensitivity": f"{_WORDS}; trains and mines one first round, then five second ones, a seed [COCO 1K]",
    "aoq-cost": f"{_WORDS}; trains nothing, times steps on this machine",
    "aoq-ranks": f"{_WORDS}; runs or score files, else trains both rounds of two bases [COCO 5K]",
    "aoq-draw": f"{_WORDS}; trains a first round and two second ones, a seed [COCO 1K]",
    "aoq-examples": f"{_WORDS}, pictures to show; two runs, else trains both rounds [COCO]",
    "dive-ablation": f"{_WORDS}; trains five runs a seed [COCO 5K]",
    "dive-eccv": f"{_WORDS}; runs or score files, else trains three methods a seed [COCO 5K with eccv-caption]",
    "dive-capacity": f"{_WORDS}; trains three runs a seed [Flickr30K]",
    "dive-cost": "captions of a test split; trains nothing, times scoring on this machine [Flickr30K]",
    "dive-tsne": f"{_WORDS}; trains a run a similarity",
    "dive-attention": f"{_WORDS}, pictures to show; a run, else trains one",
    "ncr-losses": f"{_WORDS}; a run of ncr (until=warm-up is enough), else trains one [Flickr30K]",
    "ncr-labels": f"{_WORDS}; a finished run of ncr, else trains one [Flickr30K]",
    "ncr-examples": f"{_WORDS}, pictures to show; a run, else trains one [CC152K]",
    "ncr-5k": f"{_WORDS} (testall if there is one); score files, else trains 21 runs a seed [COCO 5K, regions]",
    "ncr-pmrp": f"{_WORDS}, labels of pictures for PMRP; score files, else trains four runs a seed [COCO 1K, classes]",
}


def needs(name: str) -> str:
    """What an exhibit needs."""
    return NEEDS.get(name, _WORDS)
