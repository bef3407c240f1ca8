"""The histogram of an audit as inline SVG: evidence of all pairs, and the right and wrong ones it is made of."""

from __future__ import annotations

import numpy as np

WIDE, HIGH, LEFT, LOW = 720, 240, 44, 36
BARS = 60


def histogram(evidence: np.ndarray, score: np.ndarray, *, noise: float, threshold: float | None = None) -> str:
    """Bars of all pairs, and how many of each bar the fitted mixture takes for right and for wrong, as two lines."""
    low, high = (float(np.quantile(evidence, end)) for end in (0.002, 0.998)) if len(evidence) else (0.0, 1.0)
    edges = np.linspace(low, high, BARS + 1) if high > low else np.linspace(low - 1, low + 1, BARS + 1)
    inside = np.clip(evidence, edges[0], edges[-1])
    bars = np.histogram(inside, edges)[0]
    right, wrong = (_smooth(np.histogram(inside, edges, weights=weight)[0]) for weight in (score, 1 - score))
    top = max(1.0, float(bars.max(initial=0)))
    lines = [_line(right, top, "good"), _line(wrong, top, "flame")]
    return "".join([_open(len(evidence), noise), *_bars(bars, top), *lines, _mark(threshold, edges), _axis(edges, top)])


def _smooth(line: np.ndarray) -> np.ndarray:
    return np.convolve(np.pad(line.astype(np.float64), 2, mode="edge"), [0.06, 0.24, 0.4, 0.24, 0.06], mode="valid")


def _open(pairs: int, noise: float) -> str:
    said = f"Histogram of {pairs:,} pairs by evidence; about {noise:.1%} are thought wrong"
    return f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{said}">'


def _bars(bars: np.ndarray, top: float) -> list[str]:
    step = (WIDE - LEFT - 8) / BARS
    room = HIGH - LOW - 8
    return [
        f'<rect x="{LEFT + k * step:.1f}" y="{HIGH - LOW - room * n / top:.1f}" width="{step - 1:.1f}"'
        f' height="{room * n / top:.1f}" style="fill:var(--bar)"/>'
        for k, n in enumerate(bars.tolist())
        if n
    ]


def _line(line: np.ndarray, top: float, colour: str) -> str:
    step = (WIDE - LEFT - 8) / BARS
    room = HIGH - LOW - 8
    points = " ".join(f"{LEFT + (k + 0.5) * step:.1f},{HIGH - LOW - room * n / top:.1f}" for k, n in enumerate(line))
    return f'<polyline points="{points}" style="fill:none;stroke:var(--{colour});stroke-width:2.5"/>'


def _mark(threshold: float | None, edges: np.ndarray) -> str:
    if threshold is None or not edges[0] <= threshold <= edges[-1]:
        return ""
    x = LEFT + (WIDE - LEFT - 8) * (threshold - edges[0]) / (edges[-1] - edges[0])
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{HIGH - LOW}" style="stroke:var(--bad);stroke-dasharray:4 4"/>'
    return f'{line}<text x="{x - 6:.1f}" y="20" text-anchor="end">suspect</text>'


def _axis(edges: np.ndarray, top: float) -> str:
    base = HIGH - LOW
    return (
        f'<line x1="{LEFT}" x2="{WIDE - 8}" y1="{base}" y2="{base}" style="stroke:var(--line)"/>'
        f'<text x="{LEFT}" y="{HIGH - 12}">looks wrong ({edges[0]:.1f})</text>'
        f'<text x="{WIDE - 8}" y="{HIGH - 12}" text-anchor="end">looks right ({edges[-1]:.1f})</text>'
        f'<text x="{LEFT - 6}" y="18" text-anchor="end">{top:,.0f}</text></svg>'
    )
