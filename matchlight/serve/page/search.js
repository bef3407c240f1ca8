// The front page: type, drop or paste; results come after a short pause, and never an older answer over a newer one.
import {get, upload} from './api.js';
import {at, button, make, number, plural, toast} from './dom.js';
import {draw, skeleton, walk} from './grid.js';
import {go, state} from './state.js';

const PAUSE = 220, TOP = 48, SIDE = 640;
let asked = 0, stop = null, waiting = 0, shown = '', image = null, about = null;

const first = 'a dog under a tree';

// Pictures may be all there is.
const captioned = () => !about || about.index.captions > 0;

export function openHit(hit) {
  const now = state();
  go({item: hit.id, words: image || now.find === 'text' || !now.q ? hit.caption : ''});
}

async function answer(question) {
  const turn = ++asked;
  if (stop) stop.abort();
  stop = new AbortController();
  const box = at('results');
  const late = setTimeout(() => { if (turn === asked) skeleton(box); }, box.childElementCount ? 400 : 0);
  try {
    const found = await question(stop.signal);
    if (turn !== asked) return;
    found.results.length ? draw(box, found, openHit) : nothing(box);
    at('told').textContent = told(found);
  } catch (problem) {
    if (turn !== asked || problem.name === 'AbortError') return;
    box.className = 'empty';
    box.replaceChildren(make('p', {class: 'big'}, 'That did not work'), make('p', {}, problem.message),
      button('Try again', () => { shown = ''; show(state()); }, {class: 'main'}));
    at('told').textContent = '';
  } finally {
    clearTimeout(late);
    if (turn === asked) box.setAttribute('aria-busy', 'false');
  }
}

function told(found) {
  const things = `${number(found.results.length)} of ${plural(found.total, found.find === 'text' ? 'caption' : 'picture')}`;
  if (found.query === undefined) return `${things}, picked at random`;
  const how = found.exact || found.scored >= found.total ? 'every one compared' : `exact re-rank of ${number(found.scored)}`;
  const unknown = found.unknown.length ? ` · words the model does not know: ${found.unknown.join(', ')}` : '';
  return `${things} · ${found.milliseconds.toFixed(found.milliseconds < 10 ? 1 : 0)} ms · ${how}${unknown}`;
}

function nothing(box) {
  box.className = 'empty';
  const now = state();
  box.replaceChildren(make('p', {class: 'big'}, 'Nothing here'),
    make('p', {}, now.where.length || now.inside ? 'No picture passes these filters.' : 'This collection is empty.'),
    now.where.length || now.inside ? button('Clear the filters', () => go({where: [], inside: ''}), {class: 'main'}) : '');
}

export function show(now) {
  const key = JSON.stringify([now.q, now.where, now.inside, now.find, image ? image.key : '']);
  if (now.view !== 'search' || key === shown) return;
  shown = key;
  if (at('q').value.trim() !== now.q && document.activeElement !== at('q')) at('q').value = now.q;
  chips(now);
  at('find').hidden = (!now.q && !image) || !captioned();
  for (const one of at('find').children) one.setAttribute('aria-pressed', String(one.dataset.find === now.find));
  at('tries').hidden = Boolean(now.q || image);
  if (image) answer(signal => upload(image.blob, now.find, TOP, signal));
  else if (now.q) answer(signal => get('/api/search',
    {q: now.q, top: TOP, find: now.find, where: now.where, inside: now.inside}, signal));
  else answer(signal => get('/api/items', {count: TOP, where: now.where, inside: now.inside}, signal));
}

function chips(now) {
  const parts = [];
  if (now.inside) parts.push(chip('a patch of the map', true, () => go({inside: ''})));
  for (const [name, values] of Object.entries((about && about.filters) || {})) {
    const names = Object.keys(values);
    if (names.length > 8) parts.push(menu(name, values, now));
    else if (names.length > 1 || name === 'suspect') parts.push(...names.map(value => one(name, value, values[value], now)));
  }
  at('chips').replaceChildren(...parts);
  at('chips').hidden = Boolean(image) || !parts.length;
}

function chip(text, on, onclick) {
  return button(text, onclick, {class: 'chip', 'aria-pressed': String(on)});
}

function one(name, value, count, now) {
  const pair = `${name}=${value}`, on = now.where.includes(pair);
  const others = now.where.filter(where => !where.startsWith(`${name}=`));
  const text = name === 'suspect' ? (value === 'yes' ? 'suspect' : 'not suspect') : value;
  return chip(`${text} ${number(count)}`, on, () => go({where: on ? others : [...others, pair]}));
}

function menu(name, values, now) {
  const own = now.where.find(where => where.startsWith(`${name}=`)) || '';
  const others = now.where.filter(where => !where.startsWith(`${name}=`));
  const options = Object.entries(values).sort().map(([value, count]) =>
    make('option', {value: `${name}=${value}`, selected: own === `${name}=${value}`}, `${value} (${number(count)})`));
  return make('select', {class: 'chip', 'aria-label': `Filter by ${name}`, 'aria-pressed': String(Boolean(own)),
    onchange: event => go({where: event.target.value ? [...others, event.target.value] : others})},
    make('option', {value: ''}, `any ${name}`), ...options);
}

// A large photograph is made small here: the model looks at few pixels, and the way to the server is shorter.
async function small(file) {
  try {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
    if (scale === 1 && file.size < 1e6) return file;
    const canvas = make('canvas', {width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale)});
    canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return await new Promise(done => canvas.toBlob(blob => done(blob || file), 'image/jpeg', 0.92));
  } catch {
    return file;  // the server says what is wrong with it
  }
}

export async function searchWith(file) {
  const most = about ? about.limits.upload_bytes : Infinity;
  const blob = await small(file);
  if (blob.size > most) { toast(`This picture is too large; ${number(most)} bytes at most.`); return; }
  if (image) URL.revokeObjectURL(image.address);
  image = {blob, key: String(Math.random()), address: URL.createObjectURL(blob)};
  at('asked').src = image.address;
  at('asked').hidden = false;
  at('q').value = '';
  at('q').placeholder = 'Searching with your picture; type to search with words';
  go({view: 'search', q: '', find: captioned() ? 'text' : 'image', where: [], inside: '', item: null, words: ''});
}

function forget() {
  if (!image) return;
  URL.revokeObjectURL(image.address);
  image = null;
  at('asked').hidden = true;
  at('q').placeholder = 'Describe a picture, or drop one here';
}

function typed(text, options) {
  const had = Boolean(image);
  forget();
  go({q: text.trim(), ...(had ? {find: 'image'} : {}), item: null, words: ''}, options);
}

async function tries() {
  const found = await get('/api/items', {count: 24, seed: 7}).catch(() => ({results: []}));
  const said = found.results.map(hit => hit.caption).filter(text => text.length > 16 && text.length < 48);
  const texts = [...said.slice(0, 3), first];
  at('tries').replaceChildren(make('span', {class: 'soft'}, 'Try'), ...texts.map(text =>
    button(text, () => { at('q').value = text; typed(text); at('q').focus(); }, {class: 'chip try'})));
}

export function start(known) {
  about = known;
  at('ask').addEventListener('submit', event => { event.preventDefault(); clearTimeout(waiting); typed(at('q').value); });
  at('q').addEventListener('input', () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => typed(at('q').value, {replace: Boolean(state().q)}), PAUSE);
  });
  at('q').addEventListener('keydown', event => {
    if (event.key !== 'ArrowDown') return;
    const node = at('results').querySelector('button.card, .line');
    if (node) { event.preventDefault(); node.focus(); }
  });
  at('file').addEventListener('change', event => {
    if (event.target.files[0]) searchWith(event.target.files[0]);
    event.target.value = '';
  });
  for (const node of at('find').children) node.addEventListener('click', () => go({find: node.dataset.find, item: null}));
  at('results').addEventListener('keydown', event => walk(at('results'), event));
  at('q').value = state().q;
  if (!state().q) tries();
}
