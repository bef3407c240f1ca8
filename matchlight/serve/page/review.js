// The review: one suspicious pair at a time, worst first. Every decision is on the server's disk before it counts.
import {get, post} from './api.js';
import {at, button, large, make, number, picture, toast, typing} from './dom.js';
import {histogram} from './histogram.js';
import {go, state} from './state.js';

const PAGE = 50;
let queue = null, pairs = [], here = 0, below = null, wanted = null, offers = new Map(), siblings = new Map(), busy = Promise.resolve(), active = false;

// Who reviews here: kept by the browser, sent with every decision, so that several people can share a queue.
const NAME = 'matchlight-reviewer';
let reviewer = '';
try { reviewer = localStorage.getItem(NAME) || ''; } catch { /* a page without storage */ }
function called(name) {
  reviewer = name.trim();
  try { localStorage.setItem(NAME, reviewer); } catch { /* a page without storage */ }
}
const by = decision => (decision && decision.reviewer ? ` by ${decision.reviewer}` : '');

const hit = pair => ({id: pair.id, width: pair.width, height: pair.height, caption: pair.image, image: pair.image});

async function load(offset) {
  const line = below, found = await get('/api/review', {offset, limit: PAGE, below});
  if (line !== below) return;  // asked ahead for a queue that has been cut anew since
  queue = found;
  if (pairs.length !== found.total) pairs = Array(found.total).fill(null);
  found.pairs.forEach((pair, k) => { pairs[offset + k] = pair; });
}

const ensure = place => (pairs[place] ? Promise.resolve() : load(Math.floor(place / PAGE) * PAGE));

const placeOf = row => pairs.findIndex(pair => pair && pair.row === row);

// The first pair nobody has decided about, from a place on.
async function undecided(from) {
  for (let place = from; place < pairs.length; place++) {
    await ensure(place);
    if (!pairs[place].decision) return place;
  }
  return Math.max(0, Math.min(from, pairs.length - 1));
}

export async function show(now) {
  active = now.view === 'review';
  if (!active) return;
  const box = at('review');
  try {
    if (!queue) {
      box.replaceChildren(make('div', {class: 'wait tall'}));
      await load(0);
      const at = now.row === null ? -1 : placeOf(now.row);
      here = at >= 0 ? at : await undecided(0);
    }
    frame();
    await move(here);
  } catch (problem) {
    queue = null;
    box.replaceChildren(make('div', {class: 'empty'}, make('p', {class: 'big'}, 'The review cannot be shown'),
      make('p', {}, problem.message), button('Try again', () => show(state()), {class: 'main'})));
  }
}

function frame() {
  if (at('pair')) return;
  const summary = queue.summary;
  const told = summary.estimated_noise === undefined || summary.can_tell === false ? (summary.notes || [])[0] || '' :
    `The audit looked at ${number(summary.pairs)} pairs and estimates that ${(100 * summary.estimated_noise).toFixed(1)}% are wrong.`;
  const count = make('span', {class: 'soft'});
  const chart = queue.histogram.counts ? histogram(queue.histogram, below ?? queue.histogram.threshold,
    (value, pairs) => { count.textContent = `${number(pairs)} pairs score up to ${value.toFixed(2)}`; }, cut) : '';
  at('review').replaceChildren(
    make('div', {class: 'review'},
      make('div', {id: 'pair', 'aria-live': 'polite'}),
      make('div', {class: 'side'},
        make('div', {id: 'done'}),
        make('label', {class: 'row soft'}, 'Your name ', make('input', {id: 'reviewer', type: 'text', maxlength: 60, value: reviewer,
          autocomplete: 'name', placeholder: 'kept with your decisions', onchange: event => called(event.target.value)})),
        make('div', {class: 'queue', id: 'queue', 'aria-label': 'Queue'}),
        make('details', {open: matchMedia('(min-width: 900px)').matches},
          make('summary', {}, 'Where to draw the line'), make('p', {class: 'soft'}, told, ' Bars are pairs, the line those it takes for wrong.'), chart, count),
        make('div', {class: 'row'}, make('a', {class: 'button', href: '/api/review/decisions.csv', download: 'decisions.csv'}, 'Export decisions (CSV)')),
        make('p', {class: 'soft'}, 'A cleaned copy of the data: ', make('code', {}, 'matchlight data apply AUDIT -o DIR --decisions decisions.csv')))));
}

// Waits for its turn like a decision does; a line that has moved on by then is not asked for at all.
function cut(value) {
  wanted = value;
  return inTurn(async () => {
    if (wanted !== value) return;
    below = Math.abs(value - queue.histogram.threshold) < 1e-6 ? null : value;
    pairs = []; offers.clear();
    await load(0);
    await move(await undecided(0));
  });
}

async function move(place) {
  if (!pairs.length) { progress(); at('pair').replaceChildren(finished('Nothing to review', 'No pair scores below this line.')); return; }
  here = Math.min(pairs.length - 1, Math.max(0, place));
  await ensure(here);
  draw();
  go({row: pairs[here].row}, {replace: true, quiet: true});
  for (const next of [here + 1, here + 2]) {  // what comes next is fetched while this one is looked at
    if (next < pairs.length) ensure(next).then(() => { suggested(pairs[next]); if (pairs[next].id !== null) new Image().src = `/images/${pairs[next].id}?v=${queue.version}`; }).catch(() => {});
  }
}

function suggested(pair) {
  if (!offers.has(pair.row)) {
    const found = get(`/api/review/${pair.row}`).then(({captions, images, others, decision}) => {
      siblings.set(pair.row, others);
      if (decision && !pair.decision) decided(pair, decision);  // somebody else did, meanwhile
      return [...captions.slice(0, 2), ...images].slice(0, 3);
    });
    found.catch(() => offers.delete(pair.row));
    offers.set(pair.row, found);
  }
  return offers.get(pair.row);
}

const reasons = {
  mismatched: 'To the models, this caption belongs to another picture.',
  'near-duplicate': 'The same picture or the same words are there already.',
  'caption fits many pictures': 'The caption could stand below many pictures: vague rather than wrong.',
  unreadable: 'The picture could not be read.',
  'empty caption': 'The caption has no letter.',
  'same caption for many pictures': 'Many pictures have this very caption: it says nothing about any of them.',
  'another language': 'The caption hardly shares a word with the others, so it could not be compared with them.',
  'wrong label': 'The label does not fit what the picture and the words say.',
};

function draw() {
  const pair = pairs[here], box = at('pair');
  const said = pair.decision ? pair.decision.decision : '';
  const also = make('div', {class: 'also'});
  const options = make('div', {class: 'offers', 'aria-label': 'What may fit better'}, make('div', {class: 'wait line'}));
  const act = (name, key, text, how) => button([make('kbd', {}, key), ' ', text], () => decide(how),
    {class: `act ${name}`, 'aria-pressed': String(said === name), 'data-act': name});
  box.className = `pair ${said}`;
  box.replaceChildren(
    make('div', {class: 'shown'}, pair.id === null ? make('div', {class: 'none'}, 'This picture is not in the index')
      : large(hit(pair), queue.version, {alt: `picture ${pair.image}`})),
    make('div', {class: 'told'},
      make('p', {class: 'soft'}, `${number(here + 1)} of ${number(pairs.length)} · row ${pair.row} · score ${pair.score < 0.01 ? 'below 0.01' : pair.score.toFixed(2)}`),
      make('blockquote', {}, pair.caption || '(no words)'),
      make('p', {}, make('span', {class: 'bad'}, pair.reason || 'not flagged'), ' ', make('span', {class: 'soft'}, reasons[pair.reason] || '')),
      make('p', {class: 'soft', id: 'decided'}, by(pair.decision) ? `Decided${by(pair.decision)}: ${said}` : ''),
      make('div', {class: 'acts'}, act('keep', 'K', 'Keep', {decision: 'keep'}), act('drop', 'D', 'Drop', {decision: 'drop'}),
        button([make('kbd', {}, 'U'), ' Undo'], undo, {class: 'act', id: 'undo', disabled: !queue.undoable})),
      make('h3', {}, 'Or what fits better'), options), also);
  progress();
  suggested(pair).then(found => { if (pairs[here] === pair) { offer(options, pair, found); told(also, siblings.get(pair.row)); } })
    .catch(problem => { if (pairs[here] === pair) options.replaceChildren(make('p', {class: 'soft'}, problem.message)); });
}

function told(box, others) {
  if (others && others.length) box.replaceChildren(make('p', {class: 'soft'}, 'Other captions'), make('ul', {}, others.map(text => make('li', {}, text))));
}

const choice = offered => (offered.kind === 'caption' ? {decision: 'rematch', caption_row: offered.row}
  : {decision: 'rematch', image: offered.image, ...(offered.row < 0 ? {} : {image_row: offered.row})});

const same = (decision, made) => decision && decision.decision === 'rematch' &&
  ['image', 'image_row'].every(name => (decision[name] ?? null) === (made[name] ?? null)) && (decision.caption_row ?? null) === (made.caption_row ?? null);

function offer(box, pair, found) {
  box.replaceChildren(...found.map((one, k) => {
    const made = choice(one);
    return make('button', {type: 'button', class: 'offer', 'data-act': 'rematch', 'aria-pressed': String(Boolean(same(pair.decision, made))),
        onclick: () => decide(made)}, make('kbd', {}, String(k + 1)),
      one.kind === 'image' ? picture(one, queue.version, {alt: ''}) : null,
      make('span', {}, make('span', {class: 'soft'}, one.kind === 'image' ? 'Give the caption to this picture' : 'Give the picture this caption'),
        make('span', {class: 'said'}, one.kind === 'image' ? one.image : one.caption)));
  }));
  if (!found.length) box.replaceChildren(make('p', {class: 'soft'}, 'Nothing in the collection fits better.'));
}

function progress() {
  const share = queue.total ? queue.done / queue.total : 0;
  const badge = at('left');
  badge.textContent = number(queue.left); badge.hidden = !queue.left;
  at('done').replaceChildren(make('div', {class: 'bar', role: 'progressbar', 'aria-label': 'Reviewed', 'aria-valuemin': 0,
      'aria-valuemax': queue.total, 'aria-valuenow': queue.done, vars: {'--share': share.toFixed(4)}}),
    make('p', {class: 'soft', role: 'status'}, `${number(queue.done)} done, ${number(queue.left)} left · ` +
      `${number(queue.counts.keep)} kept, ${number(queue.counts.drop)} dropped, ${number(queue.counts.rematch)} re-matched`));
  const from = Math.max(0, Math.min(here - 3, pairs.length - 12));
  at('queue').replaceChildren(...pairs.slice(from, from + 12).map((pair, k) => (pair ? make('button', {type: 'button',
    class: `thumb ${pair.decision ? pair.decision.decision : ''}`, 'aria-current': from + k === here ? 'true' : null,
    'aria-label': `Pair ${from + k + 1}${pair.decision ? `, ${pair.decision.decision}` : ''}`, onclick: () => step(() => from + k)},
    pair.id === null ? make('span', {class: 'none'}) : picture(hit(pair), queue.version, {alt: ''})) : make('span', {class: 'thumb wait'}))));
}

function finished(title, text) {
  return make('div', {class: 'empty'}, make('p', {class: 'big'}, title), make('p', {}, text));
}

function decided(pair, decision) {
  queue.done += Number(Boolean(decision)) - Number(Boolean(pair.decision));
  queue.left = queue.total - queue.done;
  pair.decision = decision;
}

function apply(place, answer) {
  queue.undoable = answer.undoable; queue.counts = answer.counts;
  if (answer.replaced) toast(`Decided before${by(answer.replaced) || ' by somebody else'}: ${answer.replaced.decision}. Yours holds now.`);
  if (place >= 0) decided(pairs[place], answer.decision);  // else it was decided before the line was drawn elsewhere
}

// One at a time and in order, however fast the keys come.
const inTurn = (job, lost = '') => { busy = busy.then(job).catch(problem => toast(lost + problem.message)); return busy; };

const step = place => inTurn(() => move(place()));

function decide(made) {
  const pair = pairs[here];
  if (!pair) return;
  inTurn(async () => {
    const answer = await post(`/api/review/${pair.row}`, {...made, reviewer}), place = placeOf(pair.row);
    apply(place, answer);
    if (queue.left === 0) { await move(here); toast('All done. Export the decisions, or look again.'); return; }
    await move(await undecided(place + 1 < pairs.length ? place + 1 : 0));
  }, 'Not saved: ');
}

function undo() {
  inTurn(async () => {
    if (!queue.undoable) return;
    const answer = await post('/api/review/undo', {reviewer});
    let place = placeOf(answer.row);
    if (place < 0) { pairs = []; await load(0); place = Math.max(0, placeOf(answer.row)); }
    else apply(place, answer);
    await move(place);
  }, 'Not saved: ');
}

async function pick(k) {
  const pair = pairs[here];
  const found = pair ? await suggested(pair).catch(() => []) : [];
  if (found[k] && pairs[here] === pair) decide(choice(found[k]));
}

export function start() {
  document.addEventListener('keydown', event => {
    if (!active || !queue || typing(event) || event.defaultPrevented || document.querySelector('dialog[open]')) return;
    const acts = {k: () => decide({decision: 'keep'}), d: () => decide({decision: 'drop'}), u: undo,
      1: () => pick(0), 2: () => pick(1), 3: () => pick(2),
      ArrowRight: () => step(() => here + 1), ArrowLeft: () => step(() => here - 1)};
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act && !event.repeat) { event.preventDefault(); act(); }
  });
}
