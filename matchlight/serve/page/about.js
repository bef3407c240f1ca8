// The model card: what answers here, what it was trained on, how well it was measured.
import {at, make, number} from './dom.js';

const words = name => name.replaceAll('_', ' ');
const share = value => (value === null || value === undefined ? null : `${(100 * value).toFixed(1)}%`);

function value(one) {
  if (one === null || one === undefined) return '–';
  if (typeof one === 'boolean') return one ? 'yes' : 'no';
  if (typeof one === 'number') return Number.isInteger(one) ? number(one) : String(Number(one.toPrecision(4)));
  if (Array.isArray(one)) return one.map(value).join(', ');
  if (typeof one === 'object') return table(one);
  return String(one);
}

const table = object => make('table', {}, make('tbody', {}, Object.entries(object).filter(([, one]) => one !== null && one !== undefined)
  .map(([name, one]) => make('tr', {}, make('th', {scope: 'row'}, words(name)), make('td', {}, value(one))))));

function trained(model) {
  const {data, sizes} = model;
  if (!data || !sizes) return null;
  return `${data.root}: ${number(sizes.pairs)} pairs, ${number(sizes.pictures)} pictures`;
}

// Figures with their 95% intervals: a number, and how far it can be trusted.
function measured(about) {
  if (!about.figures.length) return about.metrics ? make('details', {open: true}, make('summary', {}, 'Measured in training'), table(about.metrics)) : null;
  const of = ((about.metrics || {}).val || {}).pictures;
  const line = ({name, value, interval, unit}) => make('tr', {}, make('th', {scope: 'row'}, name),
    make('td', {}, `${value.toFixed(1)}${unit}`, interval ? make('span', {class: 'soft'}, `  ${interval[0].toFixed(1)} to ${interval[1].toFixed(1)}`) : null));
  return make('section', {class: 'measured'}, make('h2', {}, 'Measured'),
    make('p', {class: 'soft'}, `On the validation split${of ? ` (${number(of)} pictures)` : ''}, with 95% intervals.`),
    make('table', {}, make('tbody', {}, about.figures.map(line))));
}

function sections(index) {
  const side = (what, name) => (index[what] || {})[name];
  const model = index.model || {};
  return {
    Collection: {pictures: index.items, captions: index.captions, splits: index.splits, labels: index.labels && index.labels.length,
      built: index.built && index.built.slice(0, 16).replace('T', ' '), version: index.version, size: index.bytes && `${(index.bytes / 1e6).toFixed(1)} MB`},
    Search: {engine: index.engine, 'pictures scored for words': side('candidates', 'image'),
      'of the true best ten, found': share(side('recall', 'image')), 'captions scored for a picture': side('candidates', 'text'),
      'of the true best ten captions, found': share(side('recall', 'text'))},
    Model: {method: index.method, preset: model.preset, 'looks at pictures by': model.view && [model.view.backbone, model.view.kind, model.view.size].filter(Boolean).join(', '),
      'trained on': trained(model), seed: model.seed, 'trained by Matchlight': model.version},
  };
}

export function show(now, about) {
  if (now.view !== 'about' || !about || at('card')) return;
  const {index} = about;
  at('about').replaceChildren(make('div', {id: 'card'},
    make('h1', {}, 'About this collection'),
    make('p', {}, `${number(index.items)} pictures, searched by ${index.method || 'a model'} and served by Matchlight ${about.version}.`),
    measured(about),
    Object.entries(sections(index)).flatMap(([name, rows]) => [make('h2', {}, name), table(rows)]),
    index.model && index.model.arguments ? make('details', {}, make('summary', {}, 'All arguments of the model'), table(index.model.arguments)) : null,
    about.audit ? make('details', {open: true}, make('summary', {}, 'Audit of the data'), table(about.audit)) : null,
    make('h2', {}, 'Licences'),
    make('p', {}, 'Matchlight is Apache-2.0. Picture-book scenes, where they are shown, are drawn from OpenMoji graphics (CC BY-SA 4.0, openmoji.org). Other pictures and captions belong to whoever made them.'),
    make('p', {}, 'The API behind this page is described at ', make('a', {href: '/openapi.json'}, '/openapi.json'), '.')));
}
