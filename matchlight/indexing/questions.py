"""What a person typed: words for the model, `+more` and `-less` of something, and "what a caption must say".

    dog +red -car "on the beach"

The model reads `dog red on the beach`. `+red` counts once more by itself, `-car` counts against, and only pictures with
a caption that says *on the beach* are found. A sign counts at the beginning of a word alone: `t-shirt` is one word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from matchlight.console import BadInput

PIECE = re.compile(r'(?<!\S)(?P<sign>[+\-]?)(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s"+\-][^\s]*))(?!\S)')
MOST = 8  # signs and quotes in a question


@dataclass(frozen=True)
class Question:
    """A question in parts."""

    words: str  # what the model reads
    more: tuple[str, ...] = ()
    less: tuple[str, ...] = ()
    said: tuple[str, ...] = ()  # what a caption must say, word for word

    @property
    def plain(self) -> bool:
        """Whether it is words and nothing else."""
        return not (self.more or self.less or self.said)

    @staticmethod
    def of(text: str) -> Question:
        """From what was typed; what is no sign is a word."""
        more: list[str] = []
        less: list[str] = []
        said: list[str] = []

        def read(found: re.Match[str]) -> str:
            quoted, sign = found["quoted"], found["sign"]
            part = " ".join((found["word"] if quoted is None else quoted).split())
            if not part or (quoted is None and not sign):
                return found[0] if quoted is None else ""
            (less if sign == "-" else more if sign == "+" else said).append(part)
            return "" if sign == "-" else part

        words = " ".join(PIECE.sub(read, text).split())
        if less and not words:
            raise BadInput(f"{text}: says only what it should not be; say what to look for too, as in `dog -car`")
        if len(more) + len(less) + len(said) > MOST:
            raise BadInput(f"a question of {len(more) + len(less) + len(said)} signs and quotes; {MOST} at most")
        return Question(words, tuple(more), tuple(less), tuple(said))
