"""MRL's main table: MAP both ways by method and share of wrong labels, with the paper's four data sets beside it."""

from __future__ import annotations

import numpy as np

from matchlight.reproduce import style
from matchlight.reproduce.exhibits import Result, Work
from matchlight.reproduce.mrl_curves import LINEAR_FACT, MAPS, WAYS, curves_of, known_splits, scored
from matchlight.reproduce.mrl_linear import Plain
from matchlight.reproduce.mrl_methods import methods
from matchlight.reproduce.numbers import Row, mean_and_spread, with_spread

NOISE, QUICK_NOISE = (0.2, 0.4, 0.6, 0.8), (0.6, 0.8)  # in a hurry, what MRL's other exhibits train too
SOURCE = "MRL, main paper, MAP; deep-SM is cross-entropy; MvDA-VC, GSS-SL, ACMR and SMLN are not in Matchlight"
PRINTED = """  data, method, thousandths of MAP: picture to text at 20, 40, 60, 80% wrong labels, then text to picture
    Wikipedia        MCCA        202 202 202 202   189 189 189 189
    Wikipedia        PLS         337 337 337 337   320 320 320 320
    Wikipedia        DCCA        281 281 281 281   260 260 260 260
    Wikipedia        DCCAE       308 308 308 308   286 286 286 286
    Wikipedia        GMA         200 178 153 139   189 160 141 136
    Wikipedia        MvDA        379 285 217 144   350 270 207 142
    Wikipedia        MvDA-VC     389 330 256 162   355 304 241 153
    Wikipedia        GSS-SL      444 390 309 174   398 353 287 169
    Wikipedia        ACMR        276 231 198 135   285 194 183 138
    Wikipedia        deep-SM     441 387 293 178   392 364 248 177
    Wikipedia        FGCrossNet  403 322 233 156   358 284 205 147
    Wikipedia        SDML        464 406 299 170   448 398 311 184
    Wikipedia        DSCMR       426 331 226 142   390 300 212 140
    Wikipedia        SMLN        449 365 275 251   403 319 246 237
    Wikipedia        MRL         514 491 464 435   461 453 421 400
    INRIA-Websearch  MCCA        275 275 275 275   277 277 277 277
    INRIA-Websearch  PLS         387 387 387 387   398 398 398 398
    INRIA-Websearch  DCCA        188 188 188 188   182 182 182 182
    INRIA-Websearch  DCCAE       167 167 167 167   164 164 164 164
    INRIA-Websearch  GMA         425 372 303 245   437 378 315 251
    INRIA-Websearch  MvDA        286 269 234 186   285 265 233 185
    INRIA-Websearch  MvDA-VC     288 272 241 192   286 268 238 190
    INRIA-Websearch  GSS-SL      487 424 272 075   510 451 307 085
    INRIA-Websearch  ACMR        175 096 055 023   157 114 048 021
    INRIA-Websearch  deep-SM     495 422 238 046   509 421 258 063
    INRIA-Websearch  FGCrossNet  278 192 105 027   261 189 096 025
    INRIA-Websearch  SDML        506 419 283 024   512 412 241 066
    INRIA-Websearch  DSCMR       500 413 225 055   536 464 237 052
    INRIA-Websearch  SMLN        331 291 262 214   391 349 292 254
    INRIA-Websearch  MRL         559 543 512 417   587 571 533 424
    NUS-WIDE         MCCA        523 523 523 523   539 539 539 539
    NUS-WIDE         PLS         498 498 498 498   517 517 517 517
    NUS-WIDE         DCCA        527 527 527 527   537 537 537 537
    NUS-WIDE         DCCAE       529 529 529 529   538 538 538 538
    NUS-WIDE         GMA         545 515 488 469   547 517 491 475
    NUS-WIDE         MvDA        590 551 568 471   609 585 596 498
    NUS-WIDE         MvDA-VC     531 491 512 421   567 525 550 434
    NUS-WIDE         GSS-SL      639 639 631 567   659 658 650 592
    NUS-WIDE         ACMR        530 433 318 269   547 476 304 241
    NUS-WIDE         deep-SM     693 680 673 628   690 681 669 629
    NUS-WIDE         FGCrossNet  661 641 638 594   669 669 636 596
    NUS-WIDE         SDML        694 677 633 389   693 681 644 416
    NUS-WIDE         DSCMR       665 661 653 509   667 665 655 505
    NUS-WIDE         SMLN        676 651 646 525   685 650 639 520
    NUS-WIDE         MRL         696 690 686 669   697 695 688 673
    XMediaNet        MCCA        233 233 233 233   249 249 249 249
    XMediaNet        PLS         276 276 276 276   266 266 266 266
    XMediaNet        DCCA        152 152 152 152   162 162 162 162
    XMediaNet        DCCAE       149 149 149 149   159 159 159 159
    XMediaNet        GMA         400 380 344 276   376 364 336 277
    XMediaNet        MvDA        329 318 301 256   324 314 296 254
    XMediaNet        MvDA-VC     331 319 306 274   322 310 296 265
    XMediaNet        GSS-SL      431 381 256 044   417 361 221 031
    XMediaNet        ACMR        181 069 018 010   191 043 012 009
    XMediaNet        deep-SM     557 314 276 062   495 344 021 014
    XMediaNet        FGCrossNet  372 280 147 053   375 281 160 052
    XMediaNet        SDML        534 420 216 009   563 445 237 011
    XMediaNet        DSCMR       461 224 040 008   477 224 028 010
    XMediaNet        SMLN        520 445 070 070   514 300 303 226
    XMediaNet        MRL         625 581 384 334   623 587 408 359
"""


def published() -> list[Row]:
    """The printed lines, by data set and method."""
    out = []
    for line in PRINTED.splitlines()[1:]:
        data, method, *values = line.split()
        names = [f"{way} {share:.0%}" for way in ("i2t", "t2i") for share in NOISE]
        out.append({"data": data, "method": method, **dict(zip(names, (int(v) / 1000 for v in values), strict=True))})
    return out


def main_table(work: Work, *, noise: float | None = None) -> Result:
    """MAP of every method after training on wrong labels, at the paper's four shares or at one."""
    setups = methods(work)
    work.check(setups)
    shares = (noise,) if noise is not None else QUICK_NOISE if work.quick else NOISE
    plain = Plain.of(work.pairs, *known_splits(work), device=work.device)
    rows: list[Row] = []
    for seed in range(work.seeds):
        for share in shares:
            for name, scores in scored(work, setups, plain, noise=share, seed=seed):
                rows.append({"method": name, "noise": share, "seed": seed, **curves_of(scores, work)[1]})
    names = list(dict.fromkeys(row["method"] for row in rows))
    return work.save(
        rows,
        lambda: _draw(names, shares, rows),
        table=[_line(rows, name, shares) for name in names],
        facts=[LINEAR_FACT],
        published=published(),
        source=SOURCE,
    )


def _line(rows: list[Row], name: str, shares: tuple[float, ...]) -> Row:
    line: Row = {"method": name}
    for way in MAPS[:2]:
        for share in shares:
            mean, spread = _at(rows, name, share, way)
            line[f"{way} {share:.0%}"] = with_spread(mean, spread, seeds=len({row["seed"] for row in rows}))
    return line


def _at(rows: list[Row], name: str, share: float, way: str) -> tuple[float, float]:
    mean, spread = mean_and_spread([row[way] for row in rows if (row["method"], row["noise"]) == (name, share)])
    return float(mean), float(spread)


def _draw(names: list[str], shares: tuple[float, ...], rows: list[Row]) -> style.Figure:
    """MAP against the share of wrong labels, a line a method."""
    figure, axes = style.panels(1, 2, height=3.2, sharey=True)
    looks = style.lines_of(names)
    for panel, (way, title) in zip(axes[0], WAYS.items(), strict=True):
        for name in names:
            mean, spread = np.array([_at(rows, name, share, way) for share in shares]).T
            style.band(panel, 100 * np.array(shares), mean, spread, label=name, **looks[name])
        panel.set(title=title, xlabel="wrong training labels (%)")
        panel.set_xticks([100 * share for share in shares])
    axes[0][0].set_ylabel("MAP")
    axes[0][0].set_ylim(bottom=0)
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0], ncols=6)
    return figure
