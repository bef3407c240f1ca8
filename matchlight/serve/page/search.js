// The front page: type, drop or paste, or both: like this picture, but ... Results come after a short pause, and never an older answer over a newer one.
import {get, upload} from './api.js';
import {at, button, make, number, plural, toast} from './dom.js';
import * as filters from './filters.js';
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
    at('fits').hidden = !(found.nothing_fits && found.results.length);
  } catch (problem) {
    if (turn !== asked || problem.name === 'AbortError') return;
    box.className = 'empty';
    box.replaceChildren(make('p', {class: 'big'}, 'That did not work'), make('p', {}, problem.message),
      button('Try again', () => { shown = ''; show(state()); }, {class: 'main'}));
    at('told').textContent = '';
    at('fits').hidden = true;
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
  const key = JSON.stringify([now.q, now.where, now.inside, now.find, now.like, image ? image.key : '']);
  if (now.view !== 'search' || key === shown) return;
  shown = key;
  if (now.like !== null && image) forget();
  const pictured = Boolean(image) || now.like !== null;
  if (at('q').value.trim() !== now.q && document.activeElement !== at('q')) at('q').value = now.q;
  filters.draw(at('chips'), now, about);
  seenPicture(now.like);
  at('find').hidden = (!now.q && !image) || !captioned() || now.like !== null || (pictured && Boolean(now.q));
  for (const one of at('find').children) one.setAttribute('aria-pressed', String(one.dataset.find === now.find));
  at('tries').hidden = Boolean(now.q || pictured);
  if (image) answer(signal => upload(image.blob, {find: now.find, top: TOP, q: now.q, where: now.where}, signal));
  else if (now.q || pictured) answer(signal => get('/api/search',
    {q: now.q, like: now.like, top: TOP, find: pictured ? 'image' : now.find, where: now.where, inside: now.inside}, signal));
  else answer(signal => get('/api/items', {count: TOP, where: now.where, inside: now.inside}, signal));
}

// The picture that is part of the question, and what typing does beside it.
function seenPicture(like) {
  const pictured = Boolean(image) || like !== null;
  if (pictured) at('asked').src = image ? image.address : `/images/${like}`;
  at('asked').hidden = at('unask').hidden = !pictured;
  at('q').placeholder = pictured ? 'Like this picture, but …' : 'Describe a picture, or drop one here';
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
  at('q').value = '';
  go({view: 'search', q: '', like: null, find: captioned() ? 'text' : 'image', inside: '', item: null, words: ''});
}

// More like a picture of the collection; what is typed then says what should be different.
export function searchLike(id) {
  forget();
  at('q').value = '';
  go({view: 'search', q: '', like: id, find: 'image', item: null, words: ''});
  at('q').focus();
}

function forget() {
  if (image) URL.revokeObjectURL(image.address);
  image = null;
}

function typed(text, options) {
  go({q: text.trim(), item: null, words: ''}, options);
}

function withoutPicture() {
  forget();
  go({like: null, find: 'image'});
  at('q').focus();
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
  at('unask').addEventListener('click', withoutPicture);
  at('q').addEventListener('keydown', event => {
    if (event.key === 'Backspace' && !at('q').value && !at('unask').hidden) { event.preventDefault(); withoutPicture(); }
    if (event.key !== 'ArrowDown') return;
    const node = at('results').querySelector('button.card, .line');
    if (node) { event.preventDefault(); node.focus(); }
  });
  at('file').addEventListener('change', event => {
    if (event.target.files[0]) searchWith(event.target.files[0]);
    event.target.value = '';
  });
  for (const node of at('find').children) node.addEventListener('click', () => go({find: node.dataset.find, item: null}));
  at('results').addEventListener('keydown', event => {
    const focused = document.activeElement.closest('.card, .line');
    if (event.key.toLowerCase() === 'l' && focused && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault(); searchLike(Number(focused.dataset.id));
    } else walk(at('results'), event);
  });
  at('q').value = state().q;
  if (!state().q && state().like === null) tries();
}
