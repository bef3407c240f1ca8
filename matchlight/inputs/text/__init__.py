"""Captions as numbers: words, the vocabulary that numbers them, and all captions of a data set in one array.

In the order captions flow: `tokenize` (data/tokenising.py) cuts a caption into words, `Vocabulary` (vocabulary.py)
gives each word its number, `pad` and `Captions` (captions.py) turn lists of numbers into rectangles, a batch at a time.
`read_word_vectors` (word_vectors.py) reads what others have learnt of words.
"""

from matchlight.data.tokenising import sentences, tokenize, words
from matchlight.inputs.text.captions import Captions, pad
from matchlight.inputs.text.vocabulary import END, MASK, PAD, SPECIALS, START, UNK, Vocabulary

__all__ = [
    "END",
    "MASK",
    "PAD",
    "SPECIALS",
    "START",
    "UNK",
    "Captions",
    "Vocabulary",
    "pad",
    "sentences",
    "tokenize",
    "words",
]
