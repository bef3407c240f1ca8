"""Ranked lists that travel: TREC runs and qrels, the JSON of ranx and of MTEB, out and in.

    report = evaluate_rankings(read_run("run.t2i.trec"), read_qrels("qrels.t2i.trec"))

In reading order:

    ranked_lists.py    `Ranking`: what one query found; judgements; both from a score matrix
    ranked_figures.py  recall, MRR, MAP, NDCG of ranked lists under our two tie rules
    trec_files.py      TREC's lines
    ranking_json.py    the same as JSON: ranx, and the predictions of MTEB
    mteb_result.py     a report as MTEB's result of a task
    ranking_files.py   which of these a file is; a folder with both directions of one evaluation
"""

from matchlight.measuring.rankings.mteb_result import write_mteb
from matchlight.measuring.rankings.ranked_figures import evaluate_both, evaluate_rankings, ranked_table
from matchlight.measuring.rankings.ranked_lists import Judgements, RankedLists, Ranking
from matchlight.measuring.rankings.ranking_files import read_qrels, read_run, write_rankings

__all__ = [
    "Judgements",
    "RankedLists",
    "Ranking",
    "evaluate_both",
    "evaluate_rankings",
    "ranked_table",
    "read_qrels",
    "read_run",
    "write_mteb",
    "write_rankings",
]
