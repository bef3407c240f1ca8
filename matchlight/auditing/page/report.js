// The report's script: it reads one JSON block (escaped so that it cannot end early) and writes text nodes, never HTML.
// Decisions are keep and drop, the words of the served review and of `matchlight data apply`.
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
let decisions = {}, past = [], here = 0, shown = [], first = 0, shownRows = [];
const OLD_WORDS = {accept: 'keep', reject: 'drop'};  // what earlier reports of the same data have stored
try {
  const stored = JSON.parse(localStorage.getItem(key) || '{}') || {};
  for (const [row, word] of Object.entries(stored)) decisions[row] = OLD_WORDS[word] || word;
} catch (e) { decisions = {}; }
const CARDS = 50, LINES = 100;
const store = () => {
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
        [' ', 'score ' + pair.score.toPrecision(3), 'row ' + pair.row, pair.split, pair.name].join(' \u00b7 ')),
      ...better(pair),
      make('div', {class: 'acts'}, choice(place, state, 'keep', 'Keep the pair'),
        choice(place, state, 'drop', 'Drop the pair'))));
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
  showCounts();
}
function showCounts() {
  const done = Object.values(decisions), count = what => done.filter(d => d === what).length;
  at('state').textContent = shown.length + ' pairs to review, ' + count('keep') + ' kept, ' +
    count('drop') + ' dropped';
  at('undo').disabled = !past.length;
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
  past.push([pair.row, decisions[pair.row], place]);
  if (decisions[pair.row] === what) delete decisions[pair.row]; else decisions[pair.row] = what;
  store(); here = Math.min(place + 1, shown.length - 1); draw(); mark();
}
function undo() {
  const last = past.pop();
  if (!last) return;
  if (last[1]) decisions[last[0]] = last[1]; else delete decisions[last[0]];
  store(); here = last[2]; draw(); mark();
}
function step(by) { here = Math.max(0, Math.min(shown.length - 1, here + by)); mark(); }
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const act = {ArrowRight: () => step(1), ArrowLeft: () => step(-1), k: () => decide(here, 'keep'),
    d: () => decide(here, 'drop'), u: undo}[event.key];
  if (act) { event.preventDefault(); act(); }
});
function save(name, type, text) {
  const link = make('a', {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  document.body.append(link); link.click(); link.remove();
}
function decided() { return Object.entries(decisions).map(([row, decision]) => ({row: Number(row), decision})); }
function filterTable() {
  const name = at('find').value.toLowerCase();
  shownRows = data.rows.filter(r => wanted(data.reasons[r[4]], data.splits[r[5]], r[3])
    && (!name || r[2].toLowerCase().includes(name) || data.names[r[1]].toLowerCase().includes(name)));
  first = 0; drawTable();
}
function drawTable() {
  at('lines').replaceChildren(...shownRows.slice(first, first + LINES).map(r => make('tr', {},
    make('td', {class: 'n'}, String(r[0])), make('td', {class: 'n'}, r[3].toPrecision(3)),
    make('td', {}, data.reasons[r[4]]), make('td', {}, data.names[r[1]]), make('td', {}, r[2]))));
  const last = Math.min(first + LINES, shownRows.length);
  at('where').textContent = last ? (first + 1) + ' to ' + last + ' of ' + shownRows.length : 'no pair fits';
  at('back').disabled = first === 0; at('next').disabled = first + LINES >= shownRows.length;
}
for (const id of ['reason', 'split', 'most']) at(id).addEventListener('input', () => {
  at('mostshown').textContent = at('most').value; draw(); filterTable();
});
at('find').addEventListener('input', filterTable);
at('back').addEventListener('click', () => { first = Math.max(0, first - LINES); drawTable(); });
at('next').addEventListener('click', () => { first += LINES; drawTable(); });
at('undo').addEventListener('click', undo);
at('json').addEventListener('click', () => save('decisions.json', 'application/json',
  JSON.stringify({audit: data.key, decisions: decided()}, null, 1)));
at('csv').addEventListener('click', () => save('decisions.csv', 'text/csv',
  'row,decision\n' + decided().map(d => d.row + ',' + d.decision + '\n').join('')));
draw(); filterTable();
