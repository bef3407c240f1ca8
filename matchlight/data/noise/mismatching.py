"""Mismatched pairs: captions move to pictures they do not fit, one by one or all captions of a picture together.

Rows are fixed places and pictures never move: a row of the table gets the caption of another row. Moved captions are
exchanged among the moved rows, so none is lost or doubled, and exactly as many rows are wrong as were asked for.
"""

from __future__ import annotations

import numpy as np

from matchlight.console import BadInput
from matchlight.data.noise import papers
from matchlight.data.noise.fits import Fits, block_fits, caption_fits, derange
from matchlight.data.noise.truth import WEB, Ints, Truth, check_request, check_word, tell_moves
from matchlight.data.noise.web import web_captions
from matchlight.pairs import Pairs


def mismatch(
    pairs: Pairs, *, ratio: float, per: str = "caption", seed: int = 0, split: str = "train", like: str | None = None
) -> tuple[Pairs, Truth]:
    """Give exactly round(ratio * n) rows (or pictures) of a split wrong captions.

    `like` replays a paper's draw ("ncr", "decl"), or writes captions as the web has them ("web", see web.py).
    """
    check_request(ratio, seed)
    pairs.need_captions("mismatching")
    check_word("per", per, ("caption", "picture"))
    check_word("like (for mismatched pairs)", like, (None, "ncr", "decl", WEB))
    if like == WEB:
        return web_captions(pairs, ratio=ratio, per=per, seed=seed, split=split)
    if like == "ncr" and per == "picture":
        raise BadInput('like "ncr" moves single captions; leave out per="picture", or use like "decl"')
    if like is not None:
        order, per = papers.redraw(pairs, split, like, ratio, seed), papers.PER[like]
    else:
        move = move_captions if per == "caption" else move_blocks
        order = move(pairs, split, ratio, np.random.default_rng(seed))
    return tell_moves(pairs, order, ratio=float(ratio), seed=int(seed), per=per, like=like)


def move_captions(pairs: Pairs, split: str, ratio: float, rng: np.random.Generator) -> Ints:
    """(C,) from which row each row takes its caption, captions moving one by one."""
    rows, order = pairs.rows(split), np.arange(len(pairs))
    count = round(ratio * len(rows))
    if not count:
        return order
    fits, content = caption_fits(pairs)
    moves = exchange(fits, content[rows], pairs.picture[rows], count, rng)
    if moves is None:
        raise _impossible(pairs, split, count, len(rows), "captions")
    to, source = moves
    order[rows[to]] = rows[source]
    return order


def move_blocks(pairs: Pairs, split: str, ratio: float, rng: np.random.Generator) -> Ints:
    """(C,) from which row each row takes its caption, the captions of a picture moving together and in order."""
    rows, order = pairs.rows(split), np.arange(len(pairs))
    rows = rows[np.argsort(pairs.picture[rows], kind="stable")]
    pictures, first, held = np.unique(pairs.picture[rows], return_index=True, return_counts=True)
    count = round(ratio * len(pictures))
    if not count:
        return order
    fits = block_fits(pairs)
    groups = [np.flatnonzero(held == size) for size in np.unique(held)]  # a block goes where as many captions were
    groups = [group[fits.movable(pictures[group], pictures[group])] for group in groups]
    wanted = _share_out(np.array([len(group) for group in groups]), count, rng)
    what = "pictures (each to one with as many captions)"
    if wanted is None:
        raise _impossible(pairs, split, count, len(pictures), what)
    for group in np.flatnonzero(wanted):
        members = groups[group]
        moves = exchange(fits, pictures[members], pictures[members], int(wanted[group]), rng)
        if moves is None:
            raise _impossible(pairs, split, count, len(pictures), what)
        to, source = (first[members[places]][:, None] + np.arange(held[members[0]]) for places in moves)
        order[rows[to]] = rows[source]
    return order


def exchange(
    fits: Fits, content: Ints, picture: Ints, count: int, rng: np.random.Generator
) -> tuple[Ints, Ints] | None:
    """`count` random places and the place each takes its content from, none of which fits; None if no way was found."""
    free = np.flatnonzero(fits.movable(content, picture))
    for _ in range(_tries(count, len(free))):
        chosen = free[_draw(picture[free], count, rng)]
        turn = derange(fits, content[chosen], picture[chosen], rng) if len(chosen) == count else None
        if turn is not None:
            return chosen, chosen[turn]
    return None


def _draw(picture: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Random places, at most half of them of one picture: with more, some would have to stay. Fewer if need be."""
    shuffled = rng.permutation(len(picture))
    by_picture = np.argsort(picture[shuffled], kind="stable")
    _, first, held = np.unique(picture[shuffled][by_picture], return_index=True, return_counts=True)
    nth = np.empty(len(picture), np.int64)  # nth of its picture, in shuffled order
    nth[by_picture] = np.arange(len(picture)) - np.repeat(first, held)
    return shuffled[nth < count // 2][:count]


def _share_out(sizes: Ints, count: int, rng: np.random.Generator) -> Ints | None:
    """How many of each group move, `count` in all and never just one of a group; None if that cannot be.

    A random draw, then the least change that leaves no group with a single moved member.
    """
    able = np.where(sizes >= 2, sizes, 0)
    if count > able.sum():
        return None
    wanted = rng.multivariate_hypergeometric(able, count)
    lone = rng.permutation(np.flatnonzero(wanted == 1))
    pairs_of = len(lone) // 2
    wanted[lone[:pairs_of]], wanted[lone[pairs_of : 2 * pairs_of]] = 0, 2
    if len(lone) % 2 == 0:
        return np.asarray(wanted)
    return _settle(wanted, able, int(lone[-1]), rng)


def _settle(wanted: Ints, able: Ints, lone: int, rng: np.random.Generator) -> Ints | None:
    """Free the one group left with a single moved member: borrow one, give one away, or trade a pair for a three."""
    spare, room = np.flatnonzero(wanted >= 3), np.flatnonzero((wanted >= 2) & (wanted < able))
    if len(spare):
        wanted[rng.choice(spare)] -= 1
        wanted[lone] = 2
        return wanted
    wanted[lone] = 0
    if len(room):
        wanted[rng.choice(room)] += 1
        return wanted
    twos, threes = np.flatnonzero(wanted == 2), np.flatnonzero((wanted == 0) & (able >= 3))
    if not len(twos) or not len(threes):
        return None  # one picture alone, or an odd number where all groups are pairs
    wanted[rng.choice(twos)] = 0
    wanted[rng.choice(threes)] = 3
    return wanted


def _tries(count: int, among: int) -> int:
    """How many draws of what to move are worth making: one if all move, more where a draw is cheap."""
    return 1 if count >= among else min(200, 3 + 20_000 // count)


def _impossible(pairs: Pairs, split: str, count: int, among: int, what: str) -> BadInput:
    why = "one cannot move alone" if count == 1 else "some would stay with a picture they fit"
    advice = "ask for a larger ratio" if count == 1 and among > 1 else "ask for a smaller ratio or take more pictures"
    return BadInput(f"{pairs.root}: cannot mismatch {count} of the {among} {what} of {split!r}: {why}; {advice}")
