"""Captions as numbers: words, the vocabulary that numbers them, and all captions of a data set in one array.

In the order captions flow: `tokenize` (words.py) cuts a caption into words, `Vocabulary` (vocabulary.py) gives each
word its number, `pad` and `Captions` (captions.py) turn lists of numbers into rectangles, a batch at a time.
"""

from matchlight.text.captions import Captions, pad
from matchlight.text.vocabulary import END, MASK, PAD, SPECIALS, START, UNK, Vocabulary
from matchlight.text.words import sentences, tokenize, words

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
