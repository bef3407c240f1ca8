"""The report's page: its style, its script and what stands in its frame. No text of a user's data enters unescaped.

The script reads one JSON block (escaped so that it cannot end early) and writes text nodes only, never HTML.
"""

from __future__ import annotations

STYLE = """
.bar { position: sticky; top: 0; background: var(--back); border-bottom: 1px solid var(--line); padding: 8px 0;
  z-index: 2; display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
select, input, button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 6px 12px; min-height: 36px; }
button { cursor: pointer; } button:disabled { opacity: .5; cursor: default; }
.pair { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin: 8px 0;
  display: grid; grid-template-columns: 176px 1fr; gap: 16px; scroll-margin: 72px; }
.pair.here { border-color: var(--flame); box-shadow: 0 0 0 2px var(--glow); }
.pair.accept { border-left: 6px solid var(--good); } .pair.reject { border-left: 6px solid var(--bad); }
.pair img, .none { width: 176px; border-radius: 8px; display: block; background: var(--line); }
.none { height: 120px; padding: 48px 8px; text-align: center; font-size: 13px; color: var(--soft); }
.said { font-size: 18px; margin: 0 0 8px; color: var(--ink); overflow-wrap: anywhere; }
input[type=range] { padding: 0; vertical-align: middle; accent-color: var(--flame); }
.why { color: var(--bad); font-weight: 600; } .done { font-weight: 600; }
.better { border-top: 1px solid var(--line); margin-top: 8px; padding-top: 8px; display: flex; gap: 12px; }
.better img { width: 96px; } .better p { overflow-wrap: anywhere; }
.acts { display: flex; gap: 8px; margin-top: 8px; }
kbd { border: 1px solid var(--line); border-radius: 4px; padding: 0 6px; background: var(--card); font-size: 13px; }
@media (max-width: 560px) { .pair { grid-template-columns: 1fr; } .pair img, .none { width: 100%; } }
@media (prefers-reduced-motion: no-preference) { .pair { transition: border-color .1s; } }
"""

SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const at = id => document.getElementById(id);
const make = (tag, named, ...inside) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(named || {})) {
    if (name === 'class') node.className = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  for (const one of inside) if (one !== null) node.append(one);
  return node;
};
const key = 'matchlight-audit-' + data.key;
let decisions = {}, undone = [], here = 0, shown = [], first = 0, shownRows = [];
try { decisions = JSON.parse(localStorage.getItem(key) || '{}') || {}; } catch (e) { decisions = {}; }
const CARDS = 50, LINES = 100;
const keep = () => {
  try { localStorage.setItem(key, JSON.stringify(decisions)); } catch (e) { /* a page without storage */ }
};
const percent = value => (100 * value).toFixed(value < 0.1 ? 1 : 0) + '%';

function wanted(reason, split, score) {
  const why = at('reason').value, part = at('split').value, most = Number(at('most').value);
  return (!why || reason === why) && (!part || split === part) && score <= most;
}
function better(pair) {
  const out = [];
  if (pair.image) out.push(make('div', {class: 'better'}, make('img', {src: pair.image.src, alt: '', loading: 'lazy'}),
    make('p', {}, 'The caption fits this picture better (' + percent(pair.image.support) + '): ' + pair.image.name)));
  if (pair.caption) out.push(make('div', {class: 'better'},
    make('p', {}, 'The picture fits this caption better (' + percent(pair.caption.support) + '), of row ' +
      pair.caption.row + ': ', make('q', {}, pair.caption.text))));
  if (pair.labels) out.push(make('div', {class: 'better'}, make('p', {}, pair.labels)));
  return out;
}
function card(pair, place) {
  const state = decisions[pair.row] || '';
  const picture = pair.src ? make('img', {src: pair.src, alt: 'picture ' + pair.name, loading: 'lazy'})
    : make('div', {class: 'none'}, 'no picture to show');
  return make('article', {class: 'pair ' + state + (place === here ? ' here' : ''), tabindex: '-1', id: 'pair-' + place,
      'aria-label': 'row ' + pair.row, onclick: () => { here = place; mark(); }}, picture,
    make('div', {}, make('p', {class: 'said'}, pair.text || '(no caption)'),
      make('p', {}, make('span', {class: pair.reason ? 'why' : 'fine'}, pair.reason || 'not flagged'),
        [' ', 'score ' + pair.score.toPrecision(3), 'row ' + pair.row, pair.split, pair.name].join(' \\u00b7 ')),
      ...better(pair),
      make('div', {class: 'acts'}, choice(place, state, 'accept', 'Accept the pair'),
        choice(place, state, 'reject', 'Reject the pair'))));
}
function choice(place, state, what, name) {
  return make('button', {type: 'button', 'aria-pressed': String(state === what),
    onclick: event => { event.stopPropagation(); decide(place, what); }}, name);
}
function draw() {
  shown = data.pairs.filter(p => wanted(p.reason, p.split, p.score));
  here = Math.min(here, Math.max(0, shown.length - 1));
  const page = Math.floor(here / CARDS) * CARDS;
  at('cards').replaceChildren(...shown.slice(page, page + CARDS).map((p, k) => card(p, page + k)));
  if (!shown.length) at('cards').append(make('p', {}, 'No pair fits these filters.'));
  tell();
}
function tell() {
  const done = Object.values(decisions), count = what => done.filter(d => d === what).length;
  at('state').textContent = shown.length + ' pairs to review, ' + count('accept') + ' accepted, ' +
    count('reject') + ' rejected';
  at('undo').disabled = !undone.length;
}
function mark() {
  const page = Math.floor(here / CARDS) * CARDS;
  if (!at('pair-' + here)) draw();
  for (const node of document.querySelectorAll('.pair')) node.classList.toggle('here', node.id === 'pair-' + here);
  const node = at('pair-' + here);
  if (node) { node.focus({preventScroll: true}); node.scrollIntoView({block: 'nearest'}); }
}
function decide(place, what) {
  const pair = shown[place];
  if (!pair) return;
  undone.push([pair.row, decisions[pair.row], place]);
  if (decisions[pair.row] === what) delete decisions[pair.row]; else decisions[pair.row] = what;
  keep(); here = Math.min(place + 1, shown.length - 1); draw(); mark();
}
function undo() {
  const last = undone.pop();
  if (!last) return;
  if (last[1]) decisions[last[0]] = last[1]; else delete decisions[last[0]];
  keep(); here = last[2]; draw(); mark();
}
function step(by) { here = Math.max(0, Math.min(shown.length - 1, here + by)); mark(); }
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const act = {j: () => step(1), k: () => step(-1), a: () => decide(here, 'accept'),
    r: () => decide(here, 'reject'), u: undo}[event.key];
  if (act) { event.preventDefault(); act(); }
});
function save(name, type, text) {
  const link = make('a', {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  document.body.append(link); link.click(); link.remove();
}
function decided() { return Object.entries(decisions).map(([row, decision]) => ({row: Number(row), decision})); }
function lines() {
  const name = at('find').value.toLowerCase();
  shownRows = data.rows.filter(r => wanted(data.reasons[r[4]], data.splits[r[5]], r[3])
    && (!name || r[2].toLowerCase().includes(name) || data.names[r[1]].toLowerCase().includes(name)));
  first = 0; page();
}
function page() {
  at('lines').replaceChildren(...shownRows.slice(first, first + LINES).map(r => make('tr', {},
    make('td', {class: 'n'}, String(r[0])), make('td', {class: 'n'}, r[3].toPrecision(3)),
    make('td', {}, data.reasons[r[4]]), make('td', {}, data.names[r[1]]), make('td', {}, r[2]))));
  const last = Math.min(first + LINES, shownRows.length);
  at('where').textContent = last ? (first + 1) + ' to ' + last + ' of ' + shownRows.length : 'no pair fits';
  at('back').disabled = first === 0; at('next').disabled = first + LINES >= shownRows.length;
}
for (const id of ['reason', 'split', 'most']) at(id).addEventListener('input', () => {
  at('mostshown').textContent = at('most').value; draw(); lines();
});
at('find').addEventListener('input', lines);
at('back').addEventListener('click', () => { first = Math.max(0, first - LINES); page(); });
at('next').addEventListener('click', () => { first += LINES; page(); });
at('undo').addEventListener('click', undo);
at('json').addEventListener('click', () => save('decisions.json', 'application/json',
  JSON.stringify({audit: data.key, decisions: decided()}, null, 1)));
at('csv').addEventListener('click', () => save('decisions.csv', 'text/csv',
  'row,decision\\n' + decided().map(d => d.row + ',' + d.decision + '\\n').join('')));
draw(); lines();
"""

MAIN = """<h2 id="chart">How pairs look to the models</h2>
<p>{legend}</p>
{chart}
<h2>Review, the worst first</h2>
<p>Keys: <kbd>j</kbd> next, <kbd>k</kbd> previous, <kbd>a</kbd> accept the pair, <kbd>r</kbd> reject it,
<kbd>u</kbd> undo. Exported decisions go into <code>matchlight data apply AUDIT -o DIR --decisions FILE</code>.</p>
{cut}<div class="bar" role="toolbar" aria-label="filters and decisions">
<label>Reason <select id="reason">{reasons}</select></label>
<label>Split <select id="split">{splits}</select></label>
<label>Score up to <input id="most" type="range" min="0" max="1" step="0.01" value="1">
<output id="mostshown">1</output></label>
<button type="button" id="undo">Undo</button>
<button type="button" id="json">Export JSON</button>
<button type="button" id="csv">Export CSV</button>
<span id="state" role="status" aria-live="polite" class="soft"></span>
</div>
<div id="cards"></div>
<h2>All pairs</h2>
<div class="bar"><label>Find <input id="find" type="search" placeholder="words or a name"></label>
<button type="button" id="back">Previous</button> <button type="button" id="next">Next</button>
<span id="where" role="status" class="soft"></span></div>
<div class="scroll"><table><thead><tr><th class="n" scope="col">row</th><th class="n" scope="col">score</th>
<th scope="col">reason</th><th scope="col">picture</th><th scope="col">caption</th></tr></thead>
<tbody id="lines"></tbody></table></div>
"""

ENDING = """<noscript><p>This page needs JavaScript for review; pairs.csv holds the same findings.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
"""
