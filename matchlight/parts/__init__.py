"""Parts that two methods share: layers, encoders, similarities and losses.

In reading order:

    layers.py        shared maths: unit length, masked means, pooling
    encoders.py      encoders of pictures and captions
    similarities.py  similarities of one vector a side
    set_similarities.py  similarities of sets of vectors, and how spread a set is
    attention.py     cross-attention between regions and words
    objectives.py    hinges, InfoNCE, complementary and generalised cross-entropy
    canonical_correlation.py  the directions on which pictures and captions agree, in closed form
    canonical_start.py  two towers whose projections begin with them
    labelwise.py     parts of the methods that learn from labels
    triton_pooling.py  the mean of the largest values, as a kernel for training on a GPU
    triton_norm.py   BatchNorm over real rows, likewise
    kernel_check.py  both against plain tensors, before they are used
"""
