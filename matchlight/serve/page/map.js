// The collection as points. Points are written into an image pixel by pixel, so that 100,000 of them stay smooth;
// where few are in sight, the pictures themselves are drawn. Drag moves, the wheel zooms, a lasso searches inside.
import {get} from './api.js';
import {at, button, make, number, picture} from './dom.js';
import {go, state} from './state.js';

const PALETTE = ['#4e79a7', '#e07b00', '#59a14f', '#d1495b', '#8e6bbf', '#2a9d8f', '#b07aa1', '#9c755f', '#d4a017', '#5b8db8', '#7aa23f', '#c26a9a', '#8c8c8c'];
const DOUBT = {suspect: '#d1495b', 'not suspect': '#8f99a3'};
const FEW = 70, SIDE = 72;
let data = null, xs, ys, cells, way = '', view = {x: 0.5, y: 0.5, zoom: 0.9}, lasso = null, drawing = false, pending = 0, pointed = -1, near = 14;
const thumbs = new Map();

const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));

function unpack(found) {
  const raw = bytes(found.points), numbers = new DataView(raw.buffer);
  xs = new Float32Array(found.count); ys = new Float32Array(found.count);
  for (let k = 0; k < found.count; k++) {
    xs[k] = numbers.getUint16(4 * k, true) / 65535;
    ys[k] = 1 - numbers.getUint16(4 * k + 2, true) / 65535;
  }
  const own = bytes(found.ids), places = new DataView(own.buffer);
  found.id = Array.from({length: found.count}, (_, k) => places.getUint32(4 * k, true));
  for (const colour of Object.values(found.colours)) colour.code = bytes(colour.of);
  cells = new Map();  // points by cell of a coarse net, to find the nearest at once
  for (let k = 0; k < found.count; k++) {
    const key = cell(xs[k], ys[k]);
    if (cells.has(key)) cells.get(key).push(k); else cells.set(key, [k]);
  }
  data = found;
  way = found.colours.suspect ? 'suspect' : Object.keys(found.colours)[0] || '';
}

const NET = 128;
const cell = (x, y) => Math.min(NET - 1, Math.floor(x * NET)) * NET + Math.min(NET - 1, Math.floor(y * NET));

function hue(name, k) { return DOUBT[name] || PALETTE[k % PALETTE.length]; }

const scale = canvas => Math.min(canvas.width, canvas.height) * view.zoom;
const toScreen = (canvas, x, y) => [(x - view.x) * scale(canvas) + canvas.width / 2, (y - view.y) * scale(canvas) + canvas.height / 2];
const toMap = (canvas, px, py) => [(px - canvas.width / 2) / scale(canvas) + view.x, (py - canvas.height / 2) / scale(canvas) + view.y];

function paint() {
  pending = 0;
  const canvas = at('points');
  if (!canvas || !data) return;
  const pen = canvas.getContext('2d'), size = scale(canvas), seen = [];
  const image = pen.createImageData(canvas.width, canvas.height), dots = new Uint32Array(image.data.buffer);
  const colour = data.colours[way], tints = (colour ? colour.names : ['']).map((name, k) => packed(hue(name, k)));
  const radius = Math.max(1, Math.min(6, Math.round(130 / Math.sqrt(data.count) * Math.cbrt(view.zoom) * devicePixelRatio)));
  for (let k = 0; k < data.count; k++) {
    const px = (xs[k] - view.x) * size + canvas.width / 2, py = (ys[k] - view.y) * size + canvas.height / 2;
    if (px < 0 || py < 0 || px >= canvas.width || py >= canvas.height) continue;
    if (seen.length <= FEW) seen.push(k);
    dot(dots, canvas, px | 0, py | 0, radius, tints[colour ? colour.code[k] : 0]);
  }
  pen.putImageData(image, 0, 0);
  near = seen.length <= FEW ? SIDE / 2 : 14;
  if (seen.length <= FEW) seen.forEach(k => thumb(pen, canvas, k));
  if (pointed >= 0) ring(pen, canvas, pointed);
  if (lasso) loop(pen);
}

function dot(dots, canvas, px, py, radius, tint) {
  const round = radius * radius + radius * 0.6;
  for (let y = Math.max(0, py - radius); y <= Math.min(canvas.height - 1, py + radius); y++) {
    for (let x = Math.max(0, px - radius); x <= Math.min(canvas.width - 1, px + radius); x++) {
      if ((x - px) ** 2 + (y - py) ** 2 <= round) dots[y * canvas.width + x] = tint;
    }
  }
}

function packed(text) {
  const value = parseInt(text.slice(1), 16);
  return (235 << 24 | (value & 255) << 16 | (value >> 8 & 255) << 8 | value >> 16) >>> 0;
}

function thumb(pen, canvas, k) {
  if (!thumbs.has(k)) {
    const image = new Image();
    image.onload = soon;
    image.src = `/images/${data.id[k]}?v=${data.version}`;
    thumbs.set(k, image);
    if (thumbs.size > 400) thumbs.delete(thumbs.keys().next().value);
  }
  const image = thumbs.get(k);
  if (!image.complete || !image.naturalWidth) return;
  const [px, py] = toScreen(canvas, xs[k], ys[k]), wide = SIDE * devicePixelRatio, high = wide * image.naturalHeight / image.naturalWidth;
  pen.drawImage(image, px - wide / 2, py - high / 2, wide, high);
  const colour = data.colours[way];
  if (colour) { pen.strokeStyle = hue(colour.names[colour.code[k]], colour.code[k]); pen.lineWidth = 2 * devicePixelRatio; pen.strokeRect(px - wide / 2, py - high / 2, wide, high); }
}

function ring(pen, canvas, k) {
  const [px, py] = toScreen(canvas, xs[k], ys[k]);
  pen.strokeStyle = getComputedStyle(canvas).color;
  pen.lineWidth = 2 * devicePixelRatio;
  pen.beginPath(); pen.arc(px, py, 9 * devicePixelRatio, 0, 7); pen.stroke();
}

function loop(pen) {
  pen.beginPath();
  lasso.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.closePath();
  pen.fillStyle = 'rgba(224, 123, 0, .18)'; pen.strokeStyle = '#e07b00'; pen.lineWidth = 2 * devicePixelRatio;
  pen.fill(); pen.stroke();
}

const soon = () => { if (!pending) pending = requestAnimationFrame(paint); };

function nearest(canvas, px, py) {
  const [x, y] = toMap(canvas, px, py), reach = near * devicePixelRatio / scale(canvas), span = Math.ceil(reach * NET) + 1;
  let best = -1, closest = reach * reach;
  const cx = Math.floor(x * NET), cy = Math.floor(y * NET);
  for (let i = Math.max(0, cx - span); i <= Math.min(NET - 1, cx + span); i++) {
    for (let j = Math.max(0, cy - span); j <= Math.min(NET - 1, cy + span); j++) {
      for (const k of cells.get(i * NET + j) || []) {
        const far = (xs[k] - x) ** 2 + (ys[k] - y) ** 2;
        if (far < closest) { closest = far; best = k; }
      }
    }
  }
  return best;
}

let asking = 0;
function point(k, event) {
  if (k === pointed) { place(event); return; }
  pointed = k; soon();
  const tip = at('tip');
  clearTimeout(asking);
  if (k < 0) { tip.hidden = true; return; }
  asking = setTimeout(async () => {
    const item = await get(`/api/items/${data.id[k]}`).catch(() => null);
    if (!item || pointed !== k) return;
    tip.replaceChildren(picture(item, item.version, {loading: 'eager', alt: ''}), make('span', {}, (item.captions[0] || {text: item.image}).text));
    tip.hidden = false; place(event);
  }, 60);
}

function place(event) {
  const tip = at('tip'), box = at('points').getBoundingClientRect();
  const left = event.clientX - box.left, top = event.clientY - box.top;
  tip.style.left = `${Math.max(0, Math.min(box.width - tip.offsetWidth - 8, left + 16))}px`;
  tip.style.top = `${Math.max(0, Math.min(box.height - tip.offsetHeight - 8, top + 16))}px`;
}

function zoom(canvas, px, py, by) {
  const [x, y] = toMap(canvas, px, py);
  view.zoom = Math.min(400, Math.max(0.5, view.zoom * by));
  const [nx, ny] = toMap(canvas, px, py);
  view.x += x - nx; view.y += y - ny;
  soon();
}

function inside() {
  const [x0, y0, x1, y1] = data.box, canvas = at('points');
  const every = Math.max(1, Math.ceil(lasso.length / 60));
  return lasso.filter((_, k) => k % every === 0).map(([px, py]) => {
    const [x, y] = toMap(canvas, px, py);
    return `${(x0 + x * (x1 - x0)).toPrecision(5)},${(y0 + (1 - y) * (y1 - y0)).toPrecision(5)}`;
  }).join(';');
}

function watch(canvas) {
  const fingers = new Map();
  const spot = event => { const box = canvas.getBoundingClientRect(); return [(event.clientX - box.left) * devicePixelRatio, (event.clientY - box.top) * devicePixelRatio]; };
  let moved = 0, spread = 0;
  canvas.addEventListener('pointerdown', event => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, spot(event)); moved = 0; spread = 0;
    if ((drawing || event.shiftKey) && fingers.size === 1) lasso = [spot(event)];
  });
  canvas.addEventListener('pointermove', event => {
    const now = spot(event), last = fingers.get(event.pointerId);
    if (!last) { point(nearest(canvas, ...now), event); return; }
    fingers.set(event.pointerId, now);
    moved += Math.hypot(now[0] - last[0], now[1] - last[1]);
    if (lasso) { lasso.push(now); soon(); return; }
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()], wide = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (spread) zoom(canvas, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2, wide / spread);
      spread = wide; return;
    }
    view.x -= (now[0] - last[0]) / scale(canvas); view.y -= (now[1] - last[1]) / scale(canvas);
    soon();
  });
  const up = event => {
    fingers.delete(event.pointerId); spread = 0;
    if (lasso) { const drawn = lasso.length > 4 && moved > 30 ? inside() : ''; lasso = null; soon(); if (drawn) go({view: 'search', inside: drawn, item: null}); return; }
    if (moved < 5 && event.type === 'pointerup') { const k = nearest(canvas, ...spot(event)); if (k >= 0) open(k); }
  };
  canvas.addEventListener('pointerup', up);
  canvas.addEventListener('pointercancel', up);
  canvas.addEventListener('pointerleave', event => point(-1, event));
  canvas.addEventListener('wheel', event => { event.preventDefault(); zoom(canvas, ...spot(event), Math.exp(-event.deltaY * 0.0016)); }, {passive: false});
  canvas.addEventListener('dblclick', event => zoom(canvas, ...spot(event), 2));
  canvas.addEventListener('keydown', event => {
    const step = 0.1 / view.zoom, acts = {ArrowLeft: () => { view.x -= step; }, ArrowRight: () => { view.x += step; },
      ArrowUp: () => { view.y -= step; }, ArrowDown: () => { view.y += step; },
      '+': () => zoom(canvas, canvas.width / 2, canvas.height / 2, 1.3), '=': () => zoom(canvas, canvas.width / 2, canvas.height / 2, 1.3),
      '-': () => zoom(canvas, canvas.width / 2, canvas.height / 2, 1 / 1.3), '0': home,
      Enter: () => { const k = nearest(canvas, canvas.width / 2, canvas.height / 2); if (k >= 0) open(k); }};
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); soon(); }
  });
  new ResizeObserver(() => fit(canvas)).observe(canvas);
}

const open = k => go({item: data.id[k], words: ''});
const home = () => { view = {x: 0.5, y: 0.5, zoom: 0.9}; soon(); };

function fit(canvas) {
  const wide = Math.round(canvas.clientWidth * devicePixelRatio), high = Math.round(canvas.clientHeight * devicePixelRatio);
  if (wide && (canvas.width !== wide || canvas.height !== high)) { canvas.width = wide; canvas.height = high; }
  soon();
}

function legend() {
  const colour = data.colours[way];
  return make('ul', {class: 'legend', 'aria-label': 'Colours'}, (colour ? colour.names : []).map((name, k) =>
    make('li', {vars: {'--dot': hue(name, k)}}, name || 'none')));
}

export async function show(now) {
  if (now.view !== 'map') return;
  const box = at('map');
  if (at('points')) { fit(at('points')); return; }
  box.replaceChildren(make('div', {class: 'wait tall'}));
  try { unpack(await get('/api/map')); } catch (problem) {
    box.replaceChildren(make('div', {class: 'empty'}, make('p', {class: 'big'}, 'No map'), make('p', {}, problem.message)));
    return;
  }
  const canvas = make('canvas', {id: 'points', tabindex: 0, role: 'application',
    'aria-label': `Map of ${data.count} pictures. Arrow keys move, plus and minus zoom, Enter opens the picture in the middle.`});
  const names = Object.keys(data.colours);
  const key = make('div', {}, legend());
  const choose = make('select', {'aria-label': 'Colour by', onchange: event => { way = event.target.value; key.replaceChildren(legend()); soon(); }},
    names.map(name => make('option', {value: name, selected: name === way}, `colour: ${name}`)));
  const pen = button('Lasso', event => { drawing = !drawing; event.currentTarget.setAttribute('aria-pressed', String(drawing)); canvas.classList.toggle('drawing', drawing); },
    {'aria-pressed': 'false', title: 'Draw around points to search inside (or hold Shift)'});
  box.replaceChildren(make('div', {class: 'row spread'},
    make('p', {class: 'soft'}, `${number(data.count)} pictures; alike ones lie together. Zoom in to see them.`),
    make('div', {class: 'row'}, names.length ? choose : '', pen, button('Whole map', home))),
    make('div', {class: 'sea'}, canvas, make('div', {id: 'tip', hidden: true})), key);
  watch(canvas);
  fit(canvas);
}
