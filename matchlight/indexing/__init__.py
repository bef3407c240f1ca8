"""Search at an engine's speed with a slow model's accuracy: propose with single vectors, decide with the true score.

    index = Index.build(run, pairs, "my_index")        # encode, store, measure
    index.search("a dog on a beach").hits              # pictures for words; captions for image=FILE

The files, in reading order:

    index            `Index`, what users call: build, load, search, add, remove, explain, describe
    results          what a search gives back
    asking           a search step by step;  questions: words with signs and quotes;  item_filters: what may be found
    chances          how likely a hit is right, and when nothing fits;  folding: near-duplicates among the hits
    index_model      what an index asks of a model; run_model: a run, by torch;  onnx_model: an exported dual encoder,
                     given_model: vectors that were made already, both without torch;  words_model: a run that reads
                     words without;  models: which of them
    build, shards    from a model and a data set to a version on the disk, a few thousand items at a time;  processes:
                     by several of them
    opening          a version on the disk as an object that can be searched;  index_json: what it says of itself
    updating         adding and removing: each change is a new version
    photo_folder     an index that follows a folder of pictures
    origins          which data sets it was made of, and with which numbers they begin
    item_sets        sets of vectors as arrays: what is stored, and what a question is once it was read
    searcher         candidates from an engine, decided by the model's own similarity
    scorers          a dot product by NumPy;  matcher_scores: any other similarity, by torch
    query_reader     words and pictures of a query as a model reads them;  query_encoder: as a run does
    sentence_module  the same as a SentenceTransformer
    candidate_vectors, distil   the vectors that propose candidates: the model's own, or learned from its scores
    choosing         which of the two
    tuning           how many candidates are enough, measured
    engines/         FAISS, Milvus, and the interface of engines of other packages
    catalogue        names, captions, labels, splits, dates of the items
    explain          which region answers which word;  attention_maps, slot_attention: by the inside of a model
    picture_map      the collection as points on a map
    versions, verified     versions side by side, switched in one step; checksums, computed again only after a change
    stored_sets, records, thumbnails   files of vectors, of small records, of small pictures;  mapped: how they are read
    search_speed     how much faster than scoring everything;  index_speed: a large index from end to end
"""

from matchlight.indexing.index import Index
from matchlight.indexing.results import Hit, Results

__all__ = ["Hit", "Index", "Results"]
