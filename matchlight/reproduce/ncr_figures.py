"""NCR's Figure 1 (supplement): (a) losses after the warm-up and their mixture, (b) labels of pairs called noisy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import auroc
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import Paths, Result, Work
from matchlight.reproduce.ncr_runs import NOISE, Division, division
from matchlight.reproduce.numbers import Row
from matchlight.training.division import looks_clean, min_max_scaled, mixture

BARS = 50
BETWEEN = 0.2  # where the paper puts the border between labels of clean and of noisy pairs
ABOVE, BELOW = f"at or above {BETWEEN} (%)", f"at or below {BETWEEN} (%)"
CLEAN, NOISY, ALL = style.COLOURS[0], style.COLOURS[1], "#9AA5B1"


# ---- losses and the mixture ------------------------------------------------------------------------------------------


def losses(work: Work, *, run: Paths | None = None, truth: str | Path | None = None, noise: float = NOISE) -> Result:
    """Per-pair losses of both networks after the warm-up, scaled to 0..1, with the two Gaussians that divide them."""
    divided = division(work, run=run, truth=truth, noise=noise, first=True)
    rows = _rows(divided, divided.losses, "loss")
    fits = {name: fitted(values, seed=divided.seed) for name, values in divided.losses.items()}
    table = [{"network": name, **_fit_line(fits[name]), **_separation(divided, name)} for name in divided.losses]
    return work.save(
        rows,
        lambda: _draw_losses(divided, fits),
        table=table,
        facts=[
            divided.run,
            f"losses {divided.when}",
            "the paper prints no figures beside its plot: most noisy pairs have larger losses",
        ],
        mixtures=fits,
        pairs=len(divided.rows),
        when=divided.when,
    )


def fitted(values: np.ndarray, *, seed: int) -> list[Row]:
    """The components of NCR's mixture on the scaled losses, the clean one (the smaller mean) first."""
    model = mixture(values, seed=seed)
    if model is None:
        return []
    parts = zip(model.means_[:, 0], model.covariances_[:, 0, 0], model.weights_, strict=True)
    return [{"mean": float(m), "sd": float(v**0.5), "share": float(w)} for m, v, w in sorted(parts)]


def _fit_line(parts: list[Row]) -> Row:
    names = ("clean", "noisy")
    return {
        f"{name} {what}": part[what] for name, part in zip(names, parts, strict=False) for what in ("mean", "share")
    }


def _separation(divided: Division, name: str) -> Row:
    """How well the division separates clean from noisy pairs, where the truth is known."""
    called = looks_clean(divided.probability[name], threshold=divided.threshold)
    line: Row = {"called clean": float(called.mean())}
    if divided.clean is not None and divided.clean.any() and not divided.clean.all():
        line["clean among them"] = float(divided.clean[called].mean()) if called.any() else None
        line["AUROC"] = auroc(divided.probability[name], divided.clean)
    return line


def _rows(divided: Division, values: dict[str, np.ndarray], what: str) -> list[Row]:
    out = []
    for k, row in enumerate(divided.rows.tolist()):
        line: Row = {"row": row}
        for name, own in values.items():
            line |= {f"{what}_{name}": float(own[k]), f"clean_{name}": float(divided.probability[name][k])}
        out.append(line | ({} if divided.clean is None else {"truth": "clean" if divided.clean[k] else "noisy"}))
    return out


def _draw_losses(divided: Division, fits: dict[str, list[Row]]) -> style.Figure:
    figure, axes = style.panels(1, len(fits), height=2.7, sharex=True)
    grid, edges = np.linspace(0, 1, 400), np.linspace(0, 1, BARS + 1)
    for panel, (name, parts) in zip(axes[0], fits.items(), strict=True):
        values = min_max_scaled(divided.losses[name])
        groups = [(values, ALL, "all pairs")]
        if divided.clean is not None:
            groups = [(values[divided.clean], CLEAN, "clean pairs"), (values[~divided.clean], NOISY, "noisy pairs")]
        _bars(panel, groups, edges, whole=len(values))
        for part, dashes, kind in zip(parts, ("-", (0, (4, 1.5))), ("smaller", "larger"), strict=False):
            curve = part["share"] * np.exp(-0.5 * ((grid - part["mean"]) / part["sd"]) ** 2)
            curve /= part["sd"] * np.sqrt(2 * np.pi)
            look = {"color": "black", "linestyle": dashes, "linewidth": 1.2}
            panel.plot(grid, curve, label=f"Gaussian of the {kind} mean", **look)
        panel.set(title=f"network {name}", xlabel="loss of a pair (scaled to 0..1)", xlim=(0, 1))
    axes[0][0].set_ylabel("density")
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0])
    return figure


def _bars(panel: style.Axes, groups: list[tuple[np.ndarray, str, str]], edges: np.ndarray, *, whole: int) -> None:
    """Histograms over each other; their areas are the shares of the groups."""
    for values, colour, name in groups:
        counts = np.histogram(values, edges)[0] / (whole * (edges[1] - edges[0]))
        panel.stairs(counts, edges, fill=True, color=colour, alpha=0.45, label=name)
        panel.stairs(counts, edges, color=colour, linewidth=0.9)


# ---- rectified labels ------------------------------------------------------------------------------------------------


def labels(work: Work, *, run: Paths | None = None, truth: str | Path | None = None, noise: float = NOISE) -> Result:
    """The labels, from 0 to 1, of pairs that the peer network calls noisy: clean ones against noisy ones."""
    divided = division(work, run=run, truth=truth, noise=noise)
    if not any(np.isfinite(values).any() for values in divided.labels.values()):
        known = "a run of ncr that goes beyond its warm-up has them"
        raise BadInput(f"{work.name}: this run has no rectified labels (label_A, label_B); {known}")
    rows = _rows(divided, divided.labels, "label")
    groups = {name: called_noisy(divided, name) for name in divided.labels}
    table = [
        {"network": name, "pairs": f"{kind}, called noisy", "given a label": len(values), **_spans(values)}
        for name, both in groups.items()
        for kind, values in both.items()
    ]
    told = f"the paper: most clean pairs lie in [{BETWEEN}, 1], most noisy ones in [0, {BETWEEN}]; it prints no figures"
    return work.save(rows, lambda: _draw_labels(groups), table=table, facts=[divided.run, told])


def called_noisy(divided: Division, name: str) -> dict[str, np.ndarray]:
    """A network's labels of the pairs that its peer calls noisy, by truth; as one group where it is unknown."""
    given = divided.labels[name]
    peer = next((other for other in divided.probability if other != name), name)
    noisy = np.isfinite(given) & ~looks_clean(divided.probability[peer], threshold=divided.threshold)
    if divided.clean is None:
        return {"all": given[noisy]}
    return {"clean": given[noisy & divided.clean], "noisy": given[noisy & ~divided.clean]}


def _spans(values: np.ndarray) -> Row:
    """The mean label, and how many lie on either side of the paper's border."""
    if not len(values):
        return dict.fromkeys(("mean label", ABOVE, BELOW))
    above, below = (100 * float(np.mean(side)) for side in (values >= BETWEEN, values <= BETWEEN))
    return {"mean label": float(values.mean()), ABOVE: above, BELOW: below}


def _draw_labels(groups: dict[str, dict[str, np.ndarray]]) -> style.Figure:
    figure, axes = style.panels(1, len(groups), height=2.7, sharex=True, sharey=True)
    edges = np.linspace(0, 1, 21)
    for panel, (name, both) in zip(axes[0], groups.items(), strict=True):
        for (kind, values), colour in zip(both.items(), (CLEAN, NOISY), strict=False):
            share = 100 * np.histogram(values, edges)[0] / max(1, len(values))
            panel.stairs(share, edges, fill=True, color=colour, alpha=0.4, label=f"{kind} pairs")
            panel.stairs(share, edges, color=colour, linewidth=1)
        panel.axvline(BETWEEN, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)))
        panel.set(title=f"network {name}", xlabel="label of a pair called noisy", xlim=(0, 1))
    axes[0][0].set_ylabel("pairs of each kind (%)")
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0])
    return figure
