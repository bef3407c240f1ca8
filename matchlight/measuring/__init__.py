"""From scores to numbers.

In reading order:

    metrics/         pure functions on scores and relevance: ranks, precision, NDCG, confidence intervals
    protocols/       the field's evaluation protocols by name, one report each
    referee.py       scores of a run or of any tool under a protocol; ensembles, two against each other
    rankings/        ranked lists of other tools: TREC, ranx, MTEB, out and in
    chance.py        how likely a hit is right, and when nothing fits
    same_meaning.py  which captions say about the same
    significance.py  which methods of a comparison differ for sure
    shown.py         results that print as tables and become data frames
    evaluation_result.py  what an evaluation gives back
    onepage.py       the frame of reports that are one HTML file
"""
