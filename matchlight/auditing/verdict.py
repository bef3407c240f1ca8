"""Stage two of an audit: from signals to a score and a verdict for each pair. Takes seconds.

Signals whose value for a wrong pair is known from manufactured ones are *anchored* and enter a regression (mixture.py);
the losses of quick training join by way of the decoys. A run that was trained on these very pairs either measured
manufactured wrong pairs beside them (NCR+, Lantern), or how it treats wrong ones is learned from the pairs found wrong
without it; a run that was trained on some of them is used for these alone. A wrong pair is a stray caption, which its
siblings do not resemble, or one of several that moved to another picture together, which agree with each other: where
models find many wrong pairs that siblings support, both kinds are modelled. Neighbours and siblings count as far as
they look right themselves, found in a few passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from matchlight.auditing.label_errors import LabelVerdict
from matchlight.auditing.mixture import ALARMS, FEW, fit, flagged, separated, share_of_wrong
from matchlight.auditing.run_signals import (
    EARLY,
    LATE,
    Columns,
    Signals,
    early_loss,
    final_loss_evidence,
    loss_evidence,
    run_losses,
    trained_here,
    with_measured_losses,
)

SPANS = 3
PASSES = 3
SEPARATED = 0.97  # share of the manufactured pairs that must look worse than the usual real pair
FEWEST = 40  # pairs from which right and wrong can be told at all
FEWEST_DECOYS = 40  # from which is learned what training does to wrong pairs
CHANCE = 3.0  # standard errors by which real pairs must look better than manufactured ones
NEARLY_ALL = 0.8  # where so many may be wrong, nothing shows what a right pair looks like
TOGETHER = 0.05  # a smaller share of pairs that only siblings find right is taken for chance


@dataclass(frozen=True)
class Verdict:
    """The outcome for each usable pair."""

    score: np.ndarray  # (n,) 1 = surely right, 0 = surely wrong
    suspect: np.ndarray  # (n,) bool: flagged
    noise: float  # estimated share of wrong pairs
    interval: tuple[float, float]  # of the estimate, 95%
    evidence: np.ndarray  # (n,) log odds of right against wrong
    signals: Columns  # (n,) each signal alone, high = suspicious
    notes: list[str] = field(default_factory=list)
    unsure: str = ""  # why right and wrong pairs cannot be told apart, and none is flagged

    @property
    def used(self) -> list[str]:
        """Names of the signals."""
        return list(self.signals)

    @property
    def threshold(self) -> float | None:
        """The evidence below which pairs are suspect."""
        return float(self.evidence[self.suspect].max()) if self.suspect.any() else None

    @staticmethod
    def of_labels(labelled: LabelVerdict) -> Verdict:
        """Only class labels were audited."""
        right = np.clip(labelled.score, 1e-9, 1 - 1e-9)
        evidence = np.log(right / (1 - right))
        spread = 1.96 * float(np.sqrt(labelled.noise * (1 - labelled.noise) / max(1, len(right))))
        interval = max(0.0, labelled.noise - spread), min(1.0, labelled.noise + spread)
        state = labelled.score, labelled.suspect, labelled.noise, (0.0, 1.0) if labelled.unsure else interval
        notes = [*([labelled.unsure] if labelled.unsure else []), "labels alone"]
        return Verdict(*state, evidence, {"label": -labelled.score}, notes, labelled.unsure)


def combine(signals: Signals, *, siblings: bool = True, aside: np.ndarray | None = None) -> Verdict:
    """Combine the signals; the truth is not among them. Pairs set `aside` (n,) teach nothing and are never flagged."""
    signals = signals | {"judged": _judged(signals, aside)}
    trust, siblings = np.ones(len(signals["rows"])), siblings and has_siblings(signals)
    for _ in range(PASSES):  # `alone` is what the models say without the siblings
        real, wrong = anchored(signals, trust)
        alone, mismatch_alone, together = _fit_mixture(signals, real, wrong)
        stray, mismatch = alone, mismatch_alone
        if siblings:
            for to, end in ((real, ""), (wrong, "_wrong")):
                to.update(sibling_columns(signals, trust, end))
            stray, mismatch, _ = _fit_mixture(signals, real, wrong)
        stray, mismatch, noise, has_losses = _with_training(signals, stray, mismatch)
        evidence = stray + _run_evidence(signals, stray, alone, mismatch_alone, noise, siblings=siblings)
        moved = _share_moved_together(alone, mismatch_alone, trust, together - noise) if siblings else 0.0
        trust = 1 - _wrong(evidence, noise, alone, moved)
    columns = {name: -value for name, value in (real | run_losses(signals)).items()} | histories(signals)
    columns = {name: value for name, value in columns.items() if np.isfinite(value).any()}
    interval = _interval(signals, *((alone, mismatch_alone, True) if moved else (stray, mismatch, has_losses)))
    notes = _notes(signals, moved)
    if unsure := _unsure(signals, alone, mismatch_alone):
        bad, nothing = _wrong(evidence, 0.5, alone, 0.0), np.zeros(len(evidence), dtype=bool)
        most = 2 * (1 - _better(signals, alone, mismatch_alone))  # as many as are wrong if the models never err
        state = nothing, float(np.clip(most, 0, 1)), (0.0, 1.0), _evidence(bad), columns
        return Verdict(1 - bad, *state, [unsure, *notes], unsure)
    # What is called wrong must be so even where fewer pairs are wrong than estimated: the lower end counts.
    least = min(1.0, interval[0] / max(noise + moved, 1e-9))
    bad = _wrong(evidence, least * noise, alone, least * moved)
    usual = _not_aside(aside, len(bad))
    bad[~usual] = noise + moved
    suspect = flagged(np.where(usual, bad, 0.0))
    if signals["judged"].sum() <= FEW and not moved:
        suspect &= _borne_out(signals, evidence, mismatch, noise)
    return Verdict(1 - bad, suspect, noise + moved, interval, _evidence(bad), columns, notes)


def _not_aside(aside: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, dtype=bool) if aside is None else ~aside


def _judged(signals: Signals, aside: np.ndarray | None) -> np.ndarray:
    """(n,) bool: rows to learn from, whose manufactured wrong caption is not one set aside either."""
    usual = _not_aside(aside, len(signals["rows"]))
    return usual & usual[signals["wrong"]]


def _unsure(signals: Signals, alone: np.ndarray, made: np.ndarray) -> str:
    """Why right and wrong pairs cannot be told apart; "" where they can.

    Siblings are left out: captions that moved together agree with each other, and say nothing about the picture.
    """
    count = int(signals["judged"].sum())
    if count < FEWEST:
        return f"{count} pairs to judge are too few to tell right from wrong (it takes {FEWEST}); none is flagged"
    pictures = len(np.unique(signals["picture"][signals["judged"]]))  # captions of one picture go together
    chance = (1 / (6 * pictures)) ** 0.5
    if _better(signals, alone, made) > 0.5 + CHANCE * chance and _interval(signals, alone, made, True)[1] < NEARLY_ALL:
        return ""
    return (
        "captions fit their own pictures hardly better than others do: nearly all may be wrong, or the pairs are too "
        "few or too much alike to tell right from wrong; none is flagged"
    )


def _borne_out(signals: Signals, evidence: np.ndarray, made: np.ndarray, noise: float) -> np.ndarray:
    """(n,) bool: the worst pairs, as many as manufactured ones show to be wrong but for the usual false alarms.

    As large a part of the wrong pairs as of the manufactured ones looks so bad. This takes no model of right pairs,
    which a regression on few pairs may have wrong.
    """
    rows = np.flatnonzero(signals["judged"])
    order = rows[np.argsort(evidence[rows], kind="stable")]
    shown = np.searchsorted(np.sort(made), evidence[order], side="right") / max(1, len(made))
    count = np.arange(1, len(order) + 1)
    kept = np.flatnonzero(count - noise * len(order) * shown <= ALARMS * count)
    out = np.zeros(len(evidence), dtype=bool)
    out[order[: kept.max(initial=-1) + 1]] = True
    return out


def _better(signals: Signals, alone: np.ndarray, made: np.ndarray) -> float:
    """How often a real pair looks better than a manufactured one: a half where they look the same."""
    from scipy.stats import rankdata

    judged = signals["judged"]
    count = int(judged.sum())
    ranks = rankdata(np.concatenate([alone[judged], made[judged]]))
    return float(ranks[:count].mean() - (count + 1) / 2) / count if count else 0.5


def _notes(signals: Signals, moved: float) -> list[str]:
    """What a reader should know of how the verdict came about."""
    notes = [f"captions of one picture moved together: {moved:.1%} of the pairs"] if moved else []
    trained = trained_here(signals)
    if trained.any() and not trained.all():
        notes.append(f"the run was trained on {trained.sum()} of the {len(trained)} pairs and is used for these alone")
    return notes


def _fit_mixture(signals: Signals, real: Columns, wrong: Columns) -> tuple[np.ndarray, np.ndarray, float]:
    """Evidence of the real pairs and of the manufactured ones, and the share of wrong pairs."""
    return separated(_matrix(real), _matrix(wrong), signals["fold"], signals["judged"])


def _wrong(stray: np.ndarray, noise: float, alone: np.ndarray, moved: float) -> np.ndarray:
    """(n,) probability of being wrong, as a stray caption or as one of a picture whose captions moved together."""
    right = max(1 - noise - moved, 1e-4)
    odds = max(noise, 1e-4) * np.exp(-np.clip(stray, -50, 50)) + moved * np.exp(-np.clip(alone, -50, 50))
    return odds / (odds + right)


def _share_moved_together(alone: np.ndarray, made: np.ndarray, trust: np.ndarray, more: float) -> float:
    """The share of pairs that look wrong to the models while their siblings agree; 0 where it may be chance.

    It takes models that are good enough: right pairs and manufactured ones must hardly overlap without the siblings.
    """
    trusted = np.quantile(np.repeat(alone, 1 + (trust > 0.5)), 0.5)
    separated = float((made < trusted).mean())
    return float(more) if more > TOGETHER and separated > SEPARATED else 0.0


def _evidence(wrong: np.ndarray) -> np.ndarray:
    return np.log((1 - wrong) / np.maximum(wrong, 1e-12) + 1e-12)


def _matrix(columns: Columns) -> np.ndarray:
    return np.stack(list(columns.values()), 1)


def anchored(signals: Signals, trust: np.ndarray) -> tuple[Columns, Columns]:
    """Columns of the real pairs and of the manufactured ones, high = looks right."""
    further = sorted({name.partition("_")[0] + "_" for name in signals if name.startswith("also")})
    sources = ("", "plain_", "plain_likely_", "given_", *further)
    asked = [prefix for prefix in sources if f"{prefix}i2t" in signals]
    if "run_i2t" in signals and not trained_here(signals).any():
        # Only a model that saw none of these pairs. One that memorised some finds manufactured pairs far worse
        # than wrong ones it was trained on, and than wrong ones of pictures it knows.
        asked.append("run_")
    sides: tuple[Columns, Columns] = ({}, {})
    for to, end in zip(sides, ("", "_wrong"), strict=True):
        for prefix in asked:
            to[f"{prefix}loss"] = -(signals[f"{prefix}i2t{end}"] + signals[f"{prefix}t2i{end}"]) / 2
            if f"{prefix}i2t_z" not in signals:
                continue  # of likelihoods, only the loss
            to[f"{prefix}z_i2t"] = signals[f"{prefix}i2t_z{end}"]
            to[f"{prefix}z_t2i"] = signals[f"{prefix}t2i_z{end}"]
            ranks = [np.log(signals[f"{prefix}{way}_rank{end}"] + 1e-3) for way in ("i2t", "t2i")]
            to[f"{prefix}rank"] = -(ranks[0] + ranks[1]) / 2
        for prefix in (*asked, "free_"):
            for kind in ("text", "photo"):
                if f"{prefix}{kind}" in signals:
                    to[f"{prefix}{kind}"] = trusted_mean(signals, f"{prefix}{kind}{end}", trust)
    return sides


def share_above_mismatch(signals: Signals, prefix: str) -> float:
    """How often a model finds that a pair fits better than its picture with a manufactured caption, both ways."""
    own, made = (signals[f"{prefix}i2t{end}"] + signals[f"{prefix}t2i{end}"] for end in ("", "_wrong"))
    return float((own < made).mean())


def _with_training(
    signals: Signals, evidence: np.ndarray, made: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Join the losses of training, whose value for wrong pairs the decoys show; decoys themselves do without.

    The epochs enter in a few spans: whether early or late ones are more informative is learned as well. Which pairs
    have losses of their own is the last thing given back.
    """
    judged, decoy = signals["judged"], signals["decoy"] & signals["judged"]
    share = share_of_wrong(evidence[judged], made[judged])
    if "history" not in signals or decoy.sum() < FEWEST_DECOYS:
        return evidence, made, share, np.ones(len(evidence), dtype=bool)
    losses = spans(signals["history"])
    seen = np.isfinite(losses).all(1) & ~signals["decoy"] & judged
    x = np.column_stack([evidence[seen], -losses[seen]])
    y = np.column_stack([made[decoy], -losses[decoy]])
    joint = fit(x, y)
    out = evidence.copy()
    out[seen] = joint.evidence(x)
    return out, joint.evidence(y), min(joint.noise, share), seen  # decoys are few: the share they show may be too large


def spans(history: np.ndarray) -> np.ndarray:
    """(n, SPANS) mean losses over equal spans of the epochs, the very first epochs left out."""
    start = min(EARLY, len(history) - 1)
    parts = np.array_split(history[start : max(LATE, start + 1)].astype(np.float64), SPANS)
    return np.stack([part.mean(0) for part in parts if len(part)], 1)


def histories(signals: Signals) -> Columns:
    """Training losses of each pair, high = suspicious; nan for decoys, which were trained wrong on purpose."""
    if "history" not in signals:
        return {}
    return {"training": np.where(signals["decoy"], np.nan, early_loss(signals["history"]))}


def _run_evidence(
    signals: Signals, stray: np.ndarray, alone: np.ndarray, made_alone: np.ndarray, noise: float, *, siblings: bool
) -> np.ndarray:
    """The evidence of a run that was trained on these very pairs."""
    if "run_measured" not in signals:
        return loss_evidence(signals, stray, noise)
    models, made, _, _ = _with_training(signals, alone, made_alone)
    measured = with_measured_losses(signals, models, made, noise)
    more = measured - models  # siblings count the same with a run or without
    return more if siblings else more + final_loss_evidence(signals, measured, noise)


def has_siblings(signals: Signals) -> bool:
    """Whether some picture has a second caption."""
    return bool((signals["free_sibling_rows"] >= 0).any())


def sibling_columns(signals: Signals, trust: np.ndarray, end: str) -> Columns:
    """How well each caption (or its wrong one) agrees with the other captions of the picture."""
    out: Columns = {}
    for prefix in ("", "free_"):
        name = f"{prefix}sibling"
        if name in signals:
            out[name] = trusted_mean(signals, f"{name}{end}", trust)
            out[f"{name}_best"] = trusted_max(signals, f"{name}{end}", trust)
    return out


def trusted_mean(signals: Signals, name: str, trust: np.ndarray) -> np.ndarray:
    """The mean of a list's values, each counted as far as its row is trusted; 0 where the list is empty."""
    value, rows = signals[name].astype(np.float64), signals[f"{name}_rows"]
    weight = np.where(np.isfinite(value), trust[rows] + 1e-3, 0.0)
    total = weight.sum(1)
    return np.divide((weight * np.nan_to_num(value)).sum(1), total, out=np.zeros(len(value)), where=total > 0)


def trusted_max(signals: Signals, name: str, trust: np.ndarray) -> np.ndarray:
    """The largest value of a list, each discounted as far as its row is distrusted; 0 where the list is empty."""
    value, rows = signals[name].astype(np.float64), signals[f"{name}_rows"]
    return np.where(np.isfinite(value), value * trust[rows], 0.0).max(1, initial=0.0)


def _interval(
    signals: Signals, evidence: np.ndarray, made: np.ndarray, seen: np.ndarray | bool, *, draws: int = 50
) -> tuple[float, float]:
    """The share of wrong pairs, estimated again from pictures drawn with replacement: 95% of the estimates."""
    rng = np.random.default_rng(0)
    rows = np.flatnonzero(np.broadcast_to(seen, len(evidence)) & signals["judged"])
    made = made[signals["judged"]] if len(made) == len(evidence) else made
    if not len(rows) or not len(made):
        return 0.0, 1.0
    pictures, place = np.unique(signals["picture"][rows], return_inverse=True)
    parts = np.split(rows[np.argsort(place, kind="stable")], np.cumsum(np.bincount(place))[:-1])
    shares = []
    for _ in range(draws):
        drawn = np.concatenate([parts[k] for k in rng.integers(len(pictures), size=len(pictures))])
        shares.append(share_of_wrong(evidence[drawn], rng.choice(made, len(made))))
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)
