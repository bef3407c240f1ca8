"""Search at an engine's speed with a slow model's accuracy: propose with single vectors, decide with the true score.

    index = Index.build(run, pairs, "my_index")        # encode, store, measure
    index.search("a dog on a beach").hits              # pictures for words; captions for image=FILE

`store.py` keeps versions on the disk, `shards.py` and `vectors.py` the sets, `packs.py` and `catalogue.py` the rest;
`coarse.py` and `distil.py` make the vectors that propose, `engines/` search them, `searching.py` puts it together,
`tuning.py` measures how many candidates are enough; `growth.py` adds and removes; `explain.py` says why, `atlas.py`
draws the map; `index.py` is what users call.
"""

from matchlight.indexing.hits import Hit, Results
from matchlight.indexing.index import Index

__all__ = ["Hit", "Index", "Results"]
