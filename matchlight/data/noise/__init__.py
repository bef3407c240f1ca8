"""Noise on purpose: captions of other pictures or as the web has them, flipped labels; from a seed, on record.

Each function returns new `Pairs` and the `Truth` of what was done to them; nothing is changed in place, no split but
the named one is touched, and the same seed gives the same noise. In reading order:

    truth.py        the record of what was made wrong
    fits.py         which captions fit which pictures, and how to exchange captions so that none fits
    mismatching.py  captions moved to wrong pictures
    label_noise.py  flipped class labels
    papers.py       the noise of published work, replayed
    web_words.py    titles, file names, templates and cut captions, made by rule
    web.py          captions as the web has them
"""

from matchlight.data.noise.label_noise import flip_labels
from matchlight.data.noise.mismatching import mismatch
from matchlight.data.noise.papers import replay
from matchlight.data.noise.truth import Truth, without

__all__ = ["Truth", "flip_labels", "mismatch", "replay", "without"]
