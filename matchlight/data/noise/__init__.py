"""Noise on purpose: captions that move to a wrong picture, labels that flip; always from a seed, always on record.

Each function returns new `Pairs` and the `Truth` of what was done to them; nothing is changed in place, no split but
the named one is touched, and the same seed gives the same noise. `truth.py` is the record, `fits.py` deals captions out
so that none fits, `moving.py` and `labels.py` hold our own noise, `papers.py` replays that of published work.
"""

from matchlight.data.noise.label_noise import flip_labels
from matchlight.data.noise.mismatching import mismatch
from matchlight.data.noise.papers import replay
from matchlight.data.noise.truth import Truth, without

__all__ = ["Truth", "flip_labels", "mismatch", "replay", "without"]
