"""Trained models on disk, and what is done with one.

In reading order:

    folder.py      a run folder: `Run.load` opens it
    train_run.py   `train` makes one;  claiming.py: which run a folder belongs to
    starters.py    `starter` and `starter-small`: trained runs that come with the package
    starter_backbone.py  what `starter-small` sees of a picture, as a backbone
    history.py     how its training went, epoch by epoch
    as_given.py    vectors that were made already, as a run that compares them (given_recipe.py: its recipe)
    card.py        the model card that every finished run has;  card_figures.py: its figures with intervals
    hub_runs.py    runs on the Hugging Face hub: push one, fetch one
    onnx_runs.py   an exported run as a run, its towers computed by ONNX Runtime (onnx_recipe.py: its recipe)
    seen.py        which pairs a run has learnt from; whether two runs hold the same weights
    validation_chance.py  how likely a hit is right, measured on the validation pictures
    evaluation.py  how good a run is: encode a split, score all pairs, apply a protocol
    embeddings.py  vectors of pictures and captions as one .npz for other tools
    embedding_shards.py  the same by many processes, as Parquet shards
    vector_files.py  the same as files of FAISS, LanceDB and clip-retrieval
    onnx_vectors.py  the same of an exported run, without torch
    onnx_export.py a run as one ONNX file, checked against torch
    hard_negatives.py  hard negatives: what a run confuses in a split, written as lists
    importing.py   released checkpoints and joint models as runs of ours
"""
