// Why this matched: the picture in the dark, lit where a word found its answer; hover or focus a word to hold the match.
import {get} from './api.js';
import {at, button, large, make, picture} from './dom.js';
import {light, together} from './heat.js';
import {searchLike} from './search.js';
import {go, state} from './state.js';

let shown = '', stop = null, before = null;

export function close() {
  if (state().item === null) return false;
  go({item: null, words: ''});
  return true;
}

export async function show(now) {
  const panel = at('why');
  if (now.item === null) {
    if (!panel.hidden) { panel.hidden = true; document.body.classList.remove('with-why'); back(); }
    shown = '';
    return;
  }
  const words = now.words || now.q;
  const key = `${now.item} ${words}`;
  if (key === shown) return;
  if (panel.hidden) before = document.activeElement;
  shown = key;
  if (stop) stop.abort();
  stop = new AbortController();
  panel.hidden = false;
  document.body.classList.add('with-why');
  if (!panel.childElementCount || panel.dataset.item !== String(now.item)) panel.replaceChildren(head(), make('div', {class: 'wait tall'}));
  panel.dataset.item = now.item;
  await fill(panel, now.item, words, key).catch(problem => {
    if (problem.name !== 'AbortError' && key === shown) panel.replaceChildren(head(), make('p', {class: 'empty'}, problem.message));
  });
}

function back() {
  if (before && document.contains(before)) before.focus({preventScroll: true});
  before = null;
}

function head() {
  return make('div', {class: 'head'}, make('h2', {}, 'Why this matched'),
    button('×', close, {class: 'icon', 'aria-label': 'Close (Esc)'}));
}

async function fill(panel, id, asked, key) {
  const item = await get(`/api/items/${id}`, {}, stop.signal);
  const words = asked || (item.captions[0] || {text: ''}).text;
  const closer = words ? get(`/api/items/${id}/explain`, {q: words}, stop.signal) : Promise.resolve(null);
  const rest = make('div', {});
  const explained = await closer;
  if (key !== shown) return;
  const keep = panel.contains(document.activeElement);
  panel.replaceChildren(head(), explained ? seen(item, explained) : plain(item), facts(item), captions(item, words) || '', rest);
  if (keep || matchMedia('(max-width: 900px)').matches) panel.querySelector('.head button').focus({preventScroll: true});
  panel.scrollTop = 0;
  await more(rest, item, key);
}

function plain(item) {
  return make('div', {class: 'seen'}, large(item, item.version, {alt: item.image}));
}

function seen(item, explained) {
  const canvas = make('canvas', {width: 480, height: Math.max(1, Math.round(480 * item.height / item.width)), 'aria-hidden': 'true'});
  const all = together(explained.weights);
  const lit = weights => light(canvas, explained.regions, weights);
  let held = null;
  const chips = explained.words.map((word, k) => {
    const strong = explained.seen[k] / Math.max(1e-9, ...explained.seen);
    const on = () => { if (held === null) { mark(k); lit(explained.weights[k]); } };
    const off = () => { if (held === null) { mark(null); lit(all); } };
    return make('button', {type: 'button', class: 'word', 'aria-pressed': 'false', vars: {'--seen': strong.toFixed(3)},
      title: `seen ${(100 * explained.seen[k]).toFixed(0)}%`, onmouseenter: on, onmouseleave: off, onfocus: on, onblur: off,
      onclick: () => { held = held === k ? null : k; mark(k); lit(explained.weights[k]); for (const [n, chip] of chips.entries()) chip.setAttribute('aria-pressed', String(held === n)); }}, word);
  });
  const mark = k => chips.forEach((chip, n) => chip.classList.toggle('lit', n === k));
  const list = make('div', {class: 'words', role: 'group', 'aria-label': 'Words, as well as they were seen', onkeydown: event => {
    const here = chips.indexOf(document.activeElement), step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step && chips[here + step]) { event.preventDefault(); event.stopPropagation(); chips[here + step].focus(); }
  }}, chips);
  lit(all);
  const tabs = slots(explained, lit, all);
  return make('div', {class: 'seen'}, make('div', {class: 'lightbox', vars: {'--shape': `${item.width} / ${item.height}`}},
    large(item, item.version, {alt: item.image}), canvas), list, tabs,
    make('p', {class: 'soft'}, `Score ${explained.score.toFixed(3)}. Point at a word, or tap it, to see where the picture answers it.` +
      (explained.unknown.length ? ` The model does not know: ${explained.unknown.join(', ')}.` : '')));
}

// A set of vectors: what each of them looks at, and the caption of the collection that is nearest to it.
function slots(explained, lit, all) {
  if (explained.slots.length < 2) return null;
  const said = make('p', {class: 'nearest', 'aria-live': 'polite'});
  const choose = k => {
    for (const [n, tab] of tabs.entries()) tab.setAttribute('aria-pressed', String(n === k));
    lit(k === null ? all : explained.slots[k]);
    const own = k === null ? null : explained.nearest[k];
    said.replaceChildren(...(own && own.caption ? [make('span', {class: 'soft'}, 'Nearest caption: '),
      button(own.caption, () => go({words: own.caption}), {class: 'text'})] : []));
  };
  const tabs = explained.slots.map((_, k) => button(`View ${k + 1}`,
    event => choose(event.currentTarget.getAttribute('aria-pressed') === 'true' ? null : k),
    {'aria-pressed': 'false', title: (explained.nearest[k] || {}).caption || null}));
  return make('div', {class: 'slots'}, make('div', {class: 'switch', role: 'group', 'aria-label': 'What each vector of this picture looks at'}, tabs), said);
}

function facts(item) {
  const parts = [item.image, item.split, ...item.labels, item.taken && item.taken.replace('T', ' ').slice(0, 16), item.camera].filter(Boolean);
  return make('p', {class: 'facts'}, parts.map(text => make('span', {}, text)),
    item.suspect ? make('span', {class: 'bad'}, 'suspect') : null);
}

function captions(item, words) {
  if (!item.captions.length) return null;
  return make('div', {}, make('h3', {}, 'Its captions'), make('ul', {class: 'plain'}, item.captions.map(one =>
    make('li', {}, button(one.text, () => go({words: one.text}), {class: 'text', 'aria-pressed': String(one.text === words)})))));
}

async function more(box, item, key) {
  const [near, fits] = await Promise.all([
    get(`/api/items/${item.id}/neighbours`, {top: 8}, stop.signal),
    get(`/api/items/${item.id}/captions`, {top: 10}, stop.signal)]);
  if (key !== shown) return;
  const own = new Set(item.captions.map(one => one.row));
  const others = fits.results.filter(hit => !own.has(hit.row)).slice(0, 4);
  box.replaceChildren(
    make('h3', {}, 'Pictures like it'),
    make('p', {class: 'row'}, button('Like this picture, but …', () => searchLike(item.id), {class: 'chip'})),
    make('div', {class: 'strip'}, near.results.map(hit => make('button', {type: 'button', class: 'thumb', title: hit.caption,
      'aria-label': hit.caption, onclick: () => go({item: hit.id, words: hit.caption})}, picture(hit, near.version, {alt: ''})))),
    others.length ? make('h3', {}, 'Other captions that fit it') : '',
    make('ul', {class: 'plain'}, others.map(hit => make('li', {},
      button(hit.caption, () => go({words: hit.caption}), {class: 'text'})))));
}
