"""From pairs to tensors.

In reading order:

    weights/              pretrained weights by ordinary names: known, fetched, kept
    text/                 captions as numbers: vocabularies, and all captions of a data set in one array
    sentence_encoders.py  pretrained encoders of sentences
    minilm_files.py       MiniLM's files, found and checked without torch
    numpy_captions.py     captions as a starter reads them, by NumPy
    joint_models/         CLIP, SigLIP and SigLIP2: two towers, their tokenizers and preprocessing
    preprocessing.py      from a picture to pixels: size, whole or cropped, resampling
    onnx_files.py         networks as ONNX files: written, rounded to int8, opened
    onnx_towers.py        both towers of an exported run, with how they read pictures and captions
    compiled.py           layers compiled for training on a GPU
    backbones/            picture networks: pixels -> a grid of vectors
    features/             what a backbone makes of every picture, computed once and stored
    caption_vectors.py    what a sentence encoder makes of every caption, likewise
    caption_states.py     the same for every word piece, for training with a frozen encoder
    given_vectors.py      vectors of pictures and captions that somebody made already
    prepare.py            pairs -> features or pixels, a vocabulary, word ids and the sizes a recipe needs
    batches.py            rows of the table -> Batch
    augmentation.py       crops, flips, dropped words and regions; training only
"""
