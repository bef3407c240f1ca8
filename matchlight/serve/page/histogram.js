// How many pairs have which score, and a threshold to drag: what lies left of it is the queue.
import {number} from './dom.js';

const WIDE = 640, HIGH = 160, LOW = 20, LINE = 'http://www.w3.org/2000/svg';

function shape(tag, named, text) {
  const node = document.createElementNS(LINE, tag);
  for (const [name, value] of Object.entries(named)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

export function histogram({edges, counts, wrong}, threshold, moved, settled) {
  const most = Math.max(1, ...counts.map(Math.sqrt)), step = WIDE / counts.length;
  const svg = shape('svg', {viewBox: `0 0 ${WIDE} ${HIGH}`, class: 'histogram', tabindex: 0, role: 'slider',
    'aria-label': 'Review pairs that score up to', 'aria-valuemin': 0, 'aria-valuemax': 1});
  const bars = counts.map((count, k) => shape('rect', {x: k * step + 0.5, width: step - 1,
    y: HIGH - LOW - (HIGH - LOW - 8) * Math.sqrt(count) / most, height: (HIGH - LOW - 8) * Math.sqrt(count) / most}));
  const high = value => HIGH - LOW - (HIGH - LOW - 8) * Math.sqrt(value) / most;
  const line = shape('polyline', {class: 'wrong', points: wrong.map((value, k) => `${((k + 0.5) * step).toFixed(1)},${high(value).toFixed(1)}`).join(' ')});
  const mark = shape('line', {y1: 0, y2: HIGH - LOW, class: 'mark'});
  const grip = shape('circle', {cy: 8, r: 7, class: 'grip'});
  svg.append(...bars, line, mark, grip, shape('text', {x: 0, y: HIGH - 4}, 'surely wrong'),
    shape('text', {x: WIDE, y: HIGH - 4, 'text-anchor': 'end'}, 'surely right'));
  const below = value => counts.reduce((sum, count, k) => sum + (edges[k + 1] <= value + 1e-9 ? count
    : edges[k] >= value ? 0 : count * (value - edges[k]) / (edges[k + 1] - edges[k])), 0);
  const set = value => {
    threshold = Math.min(1, Math.max(0, value));
    const x = threshold * WIDE;
    mark.setAttribute('x1', x); mark.setAttribute('x2', x); grip.setAttribute('cx', Math.min(WIDE - 8, Math.max(8, x)));
    bars.forEach((bar, k) => bar.classList.toggle('below', edges[k] < threshold));
    svg.setAttribute('aria-valuenow', threshold.toFixed(2));
    svg.setAttribute('aria-valuetext', `${threshold.toFixed(2)}, about ${number(Math.round(below(threshold)))} pairs`);
    moved(threshold, Math.round(below(threshold)));
  };
  const spot = event => { const box = svg.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
  svg.addEventListener('pointerdown', event => { svg.setPointerCapture(event.pointerId); set(spot(event)); });
  svg.addEventListener('pointermove', event => { if (svg.hasPointerCapture(event.pointerId)) set(spot(event)); });
  svg.addEventListener('pointerup', () => settled(threshold));
  svg.addEventListener('keydown', event => {
    const by = {ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1}[event.key];
    if (by) { event.preventDefault(); event.stopPropagation(); set(threshold + by); settled(threshold); }
  });
  set(threshold);
  return svg;
}
