"""Cutting a caption into words by the Penn Treebank rules, as released vocabularies expect, without any download.

A sentence is rewritten step by step until every word stands between spaces, then split. The steps are those of nltk's
`NLTKWordTokenizer` (3.10) and give the same words; they are fewer because rules that cannot meet are one expression.
`tokenize` first cuts a caption into sentences, since a full stop is only split off at a sentence's end.

Departs from `nltk.word_tokenize`: its trained model of sentence ends (punkt) is replaced by one rule and a short list
of abbreviations. And nltk before 3.10 left an opening single quote on its word ('hello); older vocabularies have it so.
"""

from __future__ import annotations

import re

# A caption of letters, digits, single hyphens and a last full stop needs no rule but the contractions: most captions.
_PLAIN = re.compile(r"((?:[\w\s]++|-(?!-))*+)(\.?)\s*+")

# The order matters: each rule sees what the ones before it made. A rule reads: what to find, what to write instead.
_RULES = [
    (re.compile(r"``|[`«“‘„]"), r" \g<0> "),  # opening quotes
    (re.compile(r'\A"'), " `` "),  # a straight quote opens at the start of a sentence,
    (re.compile(r"""([ (\[{<])(?:"|'')"""), r"\1 `` "),  # or after a space or an opening bracket
    (re.compile(r"(?i)(?<!\w)'(?=\w)(?!(?:[mtsdn]|re|ve|ll)\b)"), "' "),  # 'hello', but not 's, 'll
    (re.compile(r"""([^.])\.([])}>"'»”’ ]*+)\s*$"""), r"\1 . \2 "),  # the last full stop, quotes after it or not
    (re.compile(r"([:,])(\D|$)"), r" \1 \2"),  # not inside 3,000 or 10:30
    (re.compile(r"\.{2,}|[;@#$%&?!\u2012-\u2015]"), r" \g<0> "),
    (re.compile(r"(?<=[^'])' "), " ' "),
    (re.compile(r"--|[][(){}<>*»”’]"), r" \g<0> "),
    (re.compile(r"""''|\""""), " '' "),  # any quote left over closes
]
# These look for one space on either side, so they run after spaces are made single.
_CLITICS = [
    (re.compile(r"(?<=[^' ])('[smdSMD]?) "), r" \1 "),  # dog 's, dogs '
    (re.compile(r"(?<=[^' ])('(?:ll|LL|re|RE|ve|VE)|n't|N'T) "), r" \1 "),  # they 're, is n't
]
_HEADS = r"can(?=not\b)|d(?='ye\b)|gim(?=me\b)|gon(?=na\b)|got(?=ta\b)|lem(?=me\b)|more(?='n\b)|wan(?=na\s)"
_CONTRACTED = re.compile(rf"(?i)\b({_HEADS})(not|'ye|me|na|ta|'n)")  # can not, gon na
_TIS = [re.compile(r"(?i) ('t)(is)\b"), re.compile(r"(?i) ('t)(was)\b")]

# A word, its full stop, closing marks, space, more text. Anchored at the word's start so that long words cost no more.
_STOP = re.compile(r"""(?<!\S)(\S*[^\s.])\.[])}>"'»”’]*+\s+(?=\S)""")
_NUMBER = re.compile(r"#?-?[.,]?\d[\d,.-]*")
_ABBREVIATIONS = "mr mrs ms dr prof st jr sr lt col gen maj sen rep inc corp co ltd bros vs ave ft ph.d a.m p.m"
_PLACES = "u.s u.s.a u.k u.n d.c l.a n.y n.j n.c s.c"
_KEEP_THEIR_STOP = frozenset(f"{_ABBREVIATIONS} {_PLACES}".split())


MOST_WORDS, MOST_LETTERS = 500, 10_000  # of a caption that a model reads: its memory grows with the longest of a batch


def first_words(caption: str) -> tuple[list[str], bool]:
    """The words of a caption that a model reads, and whether there are more of them."""
    words = tokenize(caption[:MOST_LETTERS])
    return words[:MOST_WORDS], len(caption) > MOST_LETTERS or len(words) > MOST_WORDS


def tokenize(caption: str, *, lower: bool = True) -> list[str]:
    """The words of a caption, punctuation marks included, in order; `lower=False` keeps capitals."""
    text = caption.lower() if lower else caption
    plain = _PLAIN.fullmatch(text)
    if plain:
        return _plain_words(plain)
    return [word for sentence in sentences(text) for word in words(sentence)]


def sentences(text: str) -> list[str]:
    """Cut where a full stop ends a word and text follows, unless the word is an abbreviation, a letter or a number."""
    ends = [match.end() for match in _STOP.finditer(text) if not _keeps_its_stop(match[1])]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def words(sentence: str) -> list[str]:
    """The words of one sentence, capitals as they are: word for word what nltk's NLTKWordTokenizer gives."""
    plain = _PLAIN.fullmatch(sentence)
    if plain:
        return _plain_words(plain)
    text = sentence
    for pattern, written in _RULES:
        text = pattern.sub(written, text)
    text = f" {' '.join(text.split())} "
    if "'" in text:
        for pattern, written in _CLITICS:
            text = pattern.sub(written, text)
    text = _CONTRACTED.sub(r" \1 \2 ", text)
    for pattern in _TIS:
        text = pattern.sub(r" \1 \2 ", text)
    return text.split()


def _plain_words(plain: re.Match[str]) -> list[str]:
    body, stop = plain.groups()
    return [*_CONTRACTED.sub(r" \1 \2 ", f"{body} ").split(), *stop]


def _keeps_its_stop(word: str) -> bool:
    bare = word.lower().lstrip("([{<\"'`«“‘„")
    return len(bare) < 2 or bare in _KEEP_THEIR_STOP or _NUMBER.fullmatch(bare) is not None
