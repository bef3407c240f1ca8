// Results: pictures in justified rows, or captions as a list; arrow keys walk through either.
import {make, picture} from './dom.js';

const share = (hit, hits) => {
  const best = hits[0].score, worst = hits[hits.length - 1].score;
  if (best > 0 && worst >= 0) return hit.score / best;
  return best > worst ? 0.15 + 0.85 * (hit.score - worst) / (best - worst) : 1;
};

const tall = () => (matchMedia('(max-width: 560px)').matches ? 120 : 190);

// A picture without captions goes by the name of its file.
const told = hit => hit.caption || hit.image.split('/').pop();

const known = hit => hit.chance !== null && hit.chance !== undefined;
const percent = hit => `${Math.round(100 * hit.chance)}%`;
const odds = hit => (known(hit) ? `, ${hit.said}` : '');

// How likely a result is right, as a bar and a word; where that is not known, its score beside the best.
function bar(hit, hits) {
  const length = known(hit) ? hit.chance : share(hit, hits);
  const line = make('span', {class: 'score', vars: {'--share': Number(length).toFixed(3)}});
  const title = `${known(hit) ? `${percent(hit)} likely to be right, ` : ''}score ${hit.score.toFixed(3)}`;
  return make('span', {class: 'odds', title}, line, known(hit) ? make('span', {class: 'word-of'}, hit.said) : null);
}

function card(hit, hits, found, open) {
  const ratio = Math.min(2.4, Math.max(0.5, hit.width / hit.height));
  const under = found.query === undefined ? null : bar(hit, hits);
  const copies = (hit.alike || []).length;
  return make('button', {class: 'card', type: 'button', 'data-id': hit.id, onclick: () => open(hit),
      'aria-label': `${hit.rank ? `Result ${hit.rank}: ` : ''}${told(hit)}${odds(hit)}${copies ? `, and ${copies} alike` : ''}${hit.suspect ? ' (suspect)' : ''}`,
      vars: {'--ratio': ratio.toFixed(4), '--tall': `${tall()}px`}},
    make('span', {class: 'frame'}, picture(hit, found.version, {alt: ''}),
      hit.rank && under ? make('span', {class: 'rank'}, String(hit.rank)) : null,
      copies ? make('span', {class: 'copies', title: 'near-duplicates, shown as one'}, `+${copies}`) : null,
      hit.suspect ? make('span', {class: 'doubt', title: 'The audit doubts one of its captions'}) : null),
    under, make('span', {class: 'said'}, told(hit)));
}

function line(hit, hits, found, open) {
  return make('button', {class: 'line', type: 'button', 'data-id': hit.id, onclick: () => open(hit),
      'aria-label': `Result ${hit.rank}: ${hit.caption}${odds(hit)}`},
    picture(hit, found.version, {alt: ''}),
    make('span', {class: 'what'}, make('span', {class: 'said'}, hit.caption),
      bar(hit, hits)));
}

export function draw(box, found, open) {
  const list = found.find === 'text';
  box.className = list ? 'lines' : 'grid';
  box.replaceChildren(...found.results.map(hit => (list ? line : card)(hit, found.results, found, open)));
  box.setAttribute('aria-busy', 'false');
}

export function skeleton(box) {
  const shapes = [1.33, 1.5, 1, 1.33, 1.2, 1.6, 1.33, 0.8, 1.33, 1.4, 1.1, 1.33];
  box.className = 'grid';
  box.setAttribute('aria-busy', 'true');
  box.replaceChildren(...shapes.map(ratio => make('span', {class: 'card wait', 'aria-hidden': 'true',
    vars: {'--ratio': ratio, '--tall': `${tall()}px`}}, make('span', {class: 'frame'}), make('span', {class: 'said'}))));
}

// Left and right go through the results; up and down to the one above or below.
export function walk(box, event) {
  const nodes = [...box.querySelectorAll('.card, .line')], here = nodes.indexOf(document.activeElement);
  if (here < 0) return;
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  let next = step ? nodes[here + step] : null;
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') next = vertical(nodes, here, event.key === 'ArrowDown');
  if (next) { event.preventDefault(); next.focus(); next.scrollIntoView({block: 'nearest'}); }
}

function vertical(nodes, here, down) {
  const from = nodes[here].getBoundingClientRect();
  const rows = nodes.map(node => [node, node.getBoundingClientRect()])
    .filter(([, to]) => (down ? to.top >= from.bottom - 4 : to.bottom <= from.top + 4));
  const distance = to => Math.abs(to.top - from.top) * 4 + Math.abs(to.left + to.right - from.left - from.right);
  return rows.sort((a, b) => distance(a[1]) - distance(b[1])).map(([node]) => node)[0] || null;
}
