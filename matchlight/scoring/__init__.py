"""From a model to scores: a whole table encoded, every picture scored with every caption.

In reading order:

    encode.py     a whole table through a model, sorted by length
    all_pairs.py  scores of all pairs, block by block within a memory budget
    workers.py    pieces of work over threads
    kernels/      fused scoring of attention methods, on a GPU and on a CPU
"""
