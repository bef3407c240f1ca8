// Puts the parts together: which view is shown, the theme, the keys that work everywhere.
import * as about from './about.js';
import {get} from './api.js';
import {at, button, haveOriginals, make, number, toast, typing} from './dom.js';
import * as drop from './drop.js';
import * as map from './map.js';
import * as review from './review.js';
import * as search from './search.js';
import {go, onState, state, tell} from './state.js';
import * as why from './why.js';

const THEMES = {system: '◐', light: '☀', dark: '☾'};
let known = null;

function theme() {
  let now = document.documentElement.dataset.theme || 'system';
  const draw = () => { at('theme').textContent = THEMES[now]; at('theme').setAttribute('aria-label', `Theme: ${now}`); at('theme').title = `Theme: ${now}`; };
  at('theme').addEventListener('click', () => {
    const names = Object.keys(THEMES);
    now = names[(names.indexOf(now) + 1) % names.length];
    if (now === 'system') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = now;
    try { localStorage.setItem('matchlight-theme', now); } catch { /* a page without storage */ }
    draw();
  });
  draw();
}

const KEYS = [['/', 'search'], ['+word -word', 'search: more of it, less of it'], ['"words"', 'search: a caption says so'], ['L', 'on a result: like this picture, but …'],
  ['arrows', 'move through results, pairs, the map'], ['Enter', 'why this matched'], ['Esc', 'close'],
  ['K', 'review: keep the pair'], ['D', 'review: drop it'], ['1 2 3', 'review: take a suggestion'], ['U', 'review: undo'],
  ['+ −', 'map: zoom'], ['?', 'this list']];

function help() {
  const box = at('help');
  if (!box.childElementCount) {
    box.append(make('h2', {}, 'Keys'), make('dl', {}, KEYS.flatMap(([key, what]) => [make('dt', {}, make('kbd', {}, key)), make('dd', {}, what)])),
      button('Close', () => box.close(), {class: 'main'}));
  }
  if (!box.open) box.showModal();
}

function views(now) {
  for (const section of document.querySelectorAll('.view')) section.hidden = section.id !== now.view;
  for (const link of document.querySelectorAll('[data-view]')) {
    if (link.dataset.view === now.view) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  }
  const names = {review: 'Review', map: 'Map', about: 'About'};
  document.title = `${names[now.view] ? `${names[now.view]} · ` : now.q ? `${now.q} · ` : ''}Matchlight`;
}

function keys(event) {
  if (event.key === 'Escape' && !document.querySelector('dialog[open]') && why.close()) { event.preventDefault(); return; }
  if (typing(event)) return;
  if (event.key === '/') { event.preventDefault(); if (state().view !== 'search') go({view: 'search', item: null}); at('q').focus(); at('q').select(); }
  if (event.key === '?') { event.preventDefault(); help(); }
}

async function start() {
  theme();
  at('keys').addEventListener('click', help);
  document.addEventListener('keydown', keys);
  for (const link of document.querySelectorAll('[data-view], .brand')) {
    link.addEventListener('click', event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go({view: link.dataset.view || 'search', item: null, words: '', row: null, ...(link.dataset.view ? {} : {q: '', where: [], inside: '', like: null})});
    });
  }
  try { known = await get('/api/about'); } catch (problem) { toast(problem.message); }
  haveOriginals(Boolean(known && known.originals));
  document.querySelector('[data-view="map"]').hidden = !(known && known.map);
  document.querySelector('[data-view="review"]').hidden = !(known && known.review);
  search.start(known); drop.start(); review.start();
  for (const part of [views, search.show, why.show, review.show, map.show, now => about.show(now, known)]) onState(part);
  tell();
  if (known && known.review && state().view !== 'review') {
    get('/api/review', {limit: 1}).then(({left}) => { at('left').textContent = number(left); at('left').hidden = !left; }).catch(() => {});
  }
}

start();
