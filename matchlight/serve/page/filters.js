// Filters: few values are buttons, many are a menu, days are chosen, and what a caption must say is typed.
import {button, make, number} from './dom.js';
import {go} from './state.js';

const without = (now, ...names) => now.where.filter(where => !names.some(name => where.startsWith(`${name}=`)));
const value = (now, name) => (now.where.find(where => where.startsWith(`${name}=`)) || '').slice(name.length + 1);

export function draw(box, now, about) {
  const known = (about && about.filters) || {}, parts = [];
  if (now.inside) parts.push(chip('a patch of the map', true, () => go({inside: ''})));
  for (const [name, values] of Object.entries(known)) {
    const names = Object.keys(values);
    if (name === 'year') continue;
    if (names.length > 8 || name === 'folder' || name === 'camera') parts.push(menu(name, values, now));
    else if (names.length > 1 || name === 'suspect') parts.push(...names.map(one => single(name, one, values[one], now)));
  }
  if (known.year) parts.push(day('from', 'taken from', now, known.year), day('to', 'to', now, known.year));
  if (about && about.index.captions > 0) parts.push(said(now));
  if (box.contains(document.activeElement) && document.activeElement.tagName === 'INPUT') return;  // being typed in
  const focused = box.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') || document.activeElement.dataset.pair : null;
  box.replaceChildren(...parts);
  box.hidden = !parts.length;
  if (focused) [...box.querySelectorAll('button, select, input')].find(node => (node.getAttribute('aria-label') || node.dataset.pair) === focused)?.focus();
}

function chip(text, on, onclick, pair = text) {
  return button(text, onclick, {class: 'chip', 'aria-pressed': String(on), 'data-pair': pair});
}

function single(name, one, count, now) {
  const pair = `${name}=${one}`, on = now.where.includes(pair), others = without(now, name);
  const text = name === 'suspect' ? (one === 'yes' ? 'suspect' : 'not suspect') : one;
  return chip(`${text} ${number(count)}`, on, () => go({where: on ? others : [...others, pair]}), pair);
}

function menu(name, values, now) {
  const own = value(now, name), others = without(now, name);
  const options = Object.entries(values).sort().map(([one, count]) =>
    make('option', {value: `${name}=${one}`, selected: own === one}, `${one} (${number(count)})`));
  return make('select', {class: 'chip', 'aria-label': `Filter by ${name}`, 'aria-pressed': String(Boolean(own)),
    onchange: event => go({where: event.target.value ? [...others, event.target.value] : others})},
    make('option', {value: ''}, `any ${name}`), ...options);
}

function day(name, text, now, years) {
  const known = Object.keys(years).filter(Boolean);
  const input = make('input', {type: 'date', min: `${known[0]}-01-01`, max: `${known[known.length - 1]}-12-31`, value: value(now, name),
    'aria-label': name === 'from' ? 'Taken on this day or later' : 'Taken on this day or before',
    onchange: event => go({where: event.target.value ? [...without(now, name), `${name}=${event.target.value}`] : without(now, name)})});
  return make('label', {class: 'chip day', 'aria-pressed': String(Boolean(value(now, name)))}, text, input);
}

function said(now) {
  return make('input', {class: 'chip', type: 'search', maxlength: 200, placeholder: 'a caption says …', value: value(now, 'caption'),
    'aria-label': 'Only pictures with a caption that says this', 'aria-pressed': null,
    onchange: event => { const text = event.target.value.trim(); go({where: text ? [...without(now, 'caption'), `caption=${text}`] : without(now, 'caption')}); }});
}
