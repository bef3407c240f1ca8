"""From scores to findings: a reason for each pair that needs a look, and a better partner if the data has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matchlight.auditing.label_errors import LabelVerdict
from matchlight.auditing.odd_captions import says_something
from matchlight.auditing.verdict import Signals, Verdict
from matchlight.data.findings import (
    EMPTY,
    MISMATCHED,
    NEAR_DUPLICATE,
    REASONS,
    UNREADABLE,
    VAGUE,
    WRONG_LABEL,
    Finding,
    LabelFinding,
)
from matchlight.pairs import Pairs

EACH = 20  # pairs shown of a reason that is no suspicion
SUPPORT = 0.25  # probability a better partner needs among all there are
TIMES = 3.0  # how much likelier than the own partner it must be
VAGUE_RANK = 0.1  # share of the pictures that fit a vague caption better than its own
VAGUE_GAP = 2.0  # standard deviations by which it loses its picture more than its picture loses it
SOURCES = ("", "plain_", "run_")  # of signals, the best first: quick models, canonical correlation, a run


@dataclass
class LabelFindings:
    """The findings about the labels of each pair; a pair that could not be read has labels and no finding."""

    label: np.ndarray  # (n,) that of the side found wrong; the picture's where both are, or neither
    likely: np.ndarray  # (n,) what it should rather be
    side: np.ndarray  # (n,) whose label is wrong: "image" | "text" | "both" | ""
    image: np.ndarray  # (n,) as given
    text: np.ndarray  # (n,) as given
    score: np.ndarray  # (n,) 1 = both surely right, 0 = one surely wrong

    def finding(self, k: int) -> LabelFinding:
        """One pair's."""
        columns = self.label, self.likely, self.side, self.image, self.text
        return LabelFinding(*(str(column[k]) for column in columns), label_score=float(self.score[k]))

    def sentence(self, k: int) -> str:
        """What to change, in a sentence; "" where nothing is suspect."""
        image, text, side = str(self.image[k]), str(self.text[k]), self.side[k]
        if not side:
            return ""
        if side == "both":
            given = (
                f"Both labels are {image}" if image == text else f"The picture's label is {image}, the text's {text}"
            )
            return f"{given}; more likely {self.likely[k]}."
        own, other = ("picture", f"text's is {text}") if side == "image" else ("text", f"picture's is {image}")
        return f"The {own}'s label is {self.label[k]}; more likely {self.likely[k]}. The {other}."


@dataclass
class Findings:
    """One entry for each pair of the split, in file order; -1 and "" say that there is nothing to say."""

    row: np.ndarray  # (n,) of the whole table
    score: np.ndarray  # (n,) 1 = surely right, 0 = surely wrong
    suspect: np.ndarray  # (n,) bool
    reason: np.ndarray  # (n,) str
    picture: np.ndarray  # (n,) a better picture for the caption
    picture_support: np.ndarray  # (n,) its probability
    caption: np.ndarray  # (n,) row with a better caption for the picture
    caption_support: np.ndarray
    labels: LabelFindings | None = None  # None: labels were not audited

    def __len__(self) -> int:
        return len(self.row)

    def worst(self) -> np.ndarray:
        """Places of the suspects, the worst first."""
        bad = np.flatnonzero(self.suspect)
        return bad[np.argsort(self.score[bad], kind="stable")]

    def to_review(self, *, fewest: int, most: int) -> np.ndarray:
        """Places to show, the worst first: suspects, some of every other reason, and the doubtful where these are few.

        Of more suspects than there is room for, the worst fill half of it and the others come evenly, down to the
        least suspect: that is where a person's decision is worth most.
        """
        rest = np.flatnonzero(~self.suspect)
        doubtful = rest[np.argsort(self.score[rest], kind="stable")]
        others = np.concatenate([doubtful[self.reason[doubtful] == reason][:EACH] for reason in REASONS])
        suspects = thinned(self.worst(), max(most - len(others), most // 2))
        few = doubtful[~np.isin(doubtful, others)][: max(0, fewest - len(suspects) - len(others))]
        shown = np.concatenate([suspects, others, few])[:most]
        return shown[np.argsort(self.score[shown], kind="stable")]

    def records(self, pairs: Pairs, places: np.ndarray | None = None) -> Iterator[Finding]:
        """The findings at these places (default: all, in file order) with names and captions."""
        first = np.zeros(len(pairs.names), dtype=np.int64)  # row of each picture
        first[pairs.picture[::-1]] = np.arange(len(pairs))[::-1]
        for k in range(len(self)) if places is None else places.tolist():
            yield self._record(pairs, k, first)

    def _record(self, pairs: Pairs, k: int, first: np.ndarray) -> Finding:
        row, other, caption = int(self.row[k]), int(self.picture[k]), int(self.caption[k])
        own = int(pairs.picture[row])
        return Finding(
            row=row,
            image=str(pairs.names[own]),
            caption=pairs.captions[row],
            score=float(self.score[k]),
            suspect=bool(self.suspect[k]),
            reason=str(self.reason[k]),
            split=str(pairs.splits[own]),
            better_image=str(pairs.names[other]) if other >= 0 else None,
            better_image_support=float(self.picture_support[k]) if other >= 0 else None,
            better_image_row=int(first[other]) if other >= 0 else None,
            better_caption=pairs.captions[caption] if caption >= 0 else None,
            better_caption_row=caption if caption >= 0 else None,
            better_caption_support=float(self.caption_support[k]) if caption >= 0 else None,
            labels=None if self.labels is None else self.labels.finding(k),
        )

    def counts(self) -> dict[str, int]:
        """How often each reason was signals."""
        return {reason: int((self.reason == reason).sum()) for reason in REASONS if (self.reason == reason).any()}


def thinned(places: np.ndarray, room: int) -> np.ndarray:
    """As many places as there is room for: the first ones, then evenly to the last."""
    if len(places) <= room:
        return places
    first = room // 2
    even = np.linspace(first, len(places) - 1, room - first).round().astype(np.int64)
    return places[np.concatenate([np.arange(first), even])]


def conclude(pairs: Pairs, signals: Signals, verdict: Verdict, aside: np.ndarray | None = None) -> Findings:
    """The findings of all pairs of the split, those that could not be read among them.

    `aside` (n,) is the reason why a caption cannot be judged, "" for most.
    """
    rows = signals["rows"]
    out = _blank(np.sort(np.concatenate([rows, signals["lost"]])))
    place = np.searchsorted(out.row, rows)
    out.score[place], out.suspect[place] = verdict.score, verdict.suspect
    out.reason[[not says_something(pairs.captions[row]) for row in out.row.tolist()]] = EMPTY
    out.reason[place] = _reasons(pairs, signals, verdict, aside)
    _propose(out, pairs, signals, verdict, place)
    return out


def conclude_labels(pairs: Pairs, rows: np.ndarray, labelled: LabelVerdict) -> Findings:
    """The findings where only labels were audited."""
    out = _blank(rows)
    out.score, out.suspect[:], out.reason[:] = labelled.score.copy(), False, ""
    add_labels(out, pairs, rows, labelled)
    return out


def add_labels(out: Findings, pairs: Pairs, rows: np.ndarray, labelled: LabelVerdict) -> None:
    """Label suspects join the suspects; a pair that is mismatched anyway keeps that reason.

    A pair with a wrong label is no better than that label: its score is the lower one, else it would come last.
    """
    place = np.searchsorted(out.row, rows)
    out.labels = _label_findings(out, pairs, place, labelled)
    bad = place[labelled.suspect]
    out.score[bad] = np.minimum(out.score[bad], labelled.score[labelled.suspect])
    new = bad[~out.suspect[bad]]
    out.reason[new], out.suspect[new] = WRONG_LABEL, True


def _label_findings(out: Findings, pairs: Pairs, place: np.ndarray, labelled: LabelVerdict) -> LabelFindings:
    assert pairs.labels is not None
    names = np.array(pairs.labels.names, dtype=object)
    image = names[pairs.labels.image[pairs.picture[out.row]].argmax(1)]
    text = names[pairs.labels.text[out.row].argmax(1)]
    likely, side, score = np.full(len(out), "", dtype=object), np.full(len(out), "", dtype=object), out.score.copy()
    likely[place] = np.where(labelled.suspect, names[labelled.likely], "")
    side[place], score[place] = labelled.side, labelled.score
    return LabelFindings(np.where(side == "text", text, image), likely, side, image, text, score)


def _blank(rows: np.ndarray) -> Findings:
    """Everything unreadable, until more is known."""
    count = len(rows)
    state = np.zeros(count), np.ones(count, dtype=bool), np.full(count, UNREADABLE, dtype=object)
    return Findings(rows, *state, np.full(count, -1), np.zeros(count), np.full(count, -1), np.zeros(count))


def _reasons(pairs: Pairs, signals: Signals, verdict: Verdict, aside: np.ndarray | None) -> np.ndarray:
    """Why each usable pair is worth a look; only mismatched ones are suspects."""
    reason = np.full(len(signals["rows"]), "", dtype=object)
    reason[vague(signals)] = VAGUE
    reason[repeated(pairs, signals)] = NEAR_DUPLICATE
    if aside is not None:
        reason[aside != ""] = aside[aside != ""]
    reason[verdict.suspect] = MISMATCHED
    return reason


def vague(signals: Signals) -> np.ndarray:
    """Captions that many pictures fit better, though their own picture finds them: ambiguous, not wrong."""
    prefix = next((one for one in SOURCES if f"{one}i2t" in signals), None)
    if prefix is None:
        return np.zeros(len(signals["rows"]), dtype=bool)
    gap = (signals[f"{prefix}t2i"] - signals[f"{prefix}i2t"]).astype(np.float64)
    unusual = gap > np.median(gap) + VAGUE_GAP * (gap.std() + 1e-9)
    return (signals[f"{prefix}t2i_rank"] > VAGUE_RANK) & unusual & (gap > 0)


def repeated(pairs: Pairs, signals: Signals) -> np.ndarray:
    """Pairs of a picture that looks like an earlier one, and captions said twice of one picture."""
    rows, group = signals["rows"], signals["group"]
    picture = pairs.picture[rows]
    first: dict[int, int] = {}
    said: set[tuple[int, str]] = set()
    out = np.zeros(len(rows), dtype=bool)
    for place, (row, own) in enumerate(zip(rows.tolist(), picture.tolist(), strict=True)):
        alike = int(group[own])
        words = (alike, " ".join(pairs.captions[row].lower().split()))
        out[place] = first.setdefault(alike, own) != own or words in said
        said.add(words)
    return out


def _propose(out: Findings, pairs: Pairs, signals: Signals, verdict: Verdict, place: np.ndarray) -> None:
    """Better partners of the mismatched pairs, where the models that never saw them are sure enough."""
    prefix = next((one for one in SOURCES if f"{one}other_picture" in signals), None)
    if prefix is None:
        return
    pictures = np.unique(signals["picture"])
    suspects = np.flatnonzero(verdict.suspect)
    for kind, table in (("picture", pictures), ("caption", signals["rows"])):
        best, support = agreed(signals[f"{prefix}other_{kind}"], signals[f"{prefix}other_{kind}_share"])
        sure = support >= SUPPORT
        if kind == "picture":
            sure &= support >= TIMES * signals[f"{prefix}own_share"]
        chosen = suspects[sure[suspects]]
        getattr(out, kind)[place[chosen]] = table[best[chosen]]
        getattr(out, f"{kind}_support")[place[chosen]] = support[chosen]


def agreed(places: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the proposal with the largest share over all models, and that share; models stand side by side."""
    same = places[:, :, None] == places[:, None, :]
    models = max(1, places.shape[1] // 3)
    total = np.where(places >= 0, (same * shares[:, None, :]).sum(2) / models, -1.0)
    best = total.argmax(1)
    lines = np.arange(len(places))
    return places[lines, best], np.maximum(total[lines, best], 0.0)
