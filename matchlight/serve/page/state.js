// The whole state of the page lives in the address bar: a link can be shared, and Back goes back.

const listeners = [];

export function state() {
  const query = new URLSearchParams(location.search);
  return {
    view: query.get('view') || 'search',
    q: query.get('q') || '',
    find: query.get('find') || 'image',
    where: query.getAll('where'),
    inside: query.get('inside') || '',
    item: query.get('item') === null ? null : Number(query.get('item')),
    words: query.get('words') || '',
    like: query.get('like') === null ? null : Number(query.get('like')),
    row: query.get('row') === null ? null : Number(query.get('row')),
  };
}

export function go(changes, {replace = false, quiet = false} = {}) {
  const next = {...state(), ...changes};
  const query = new URLSearchParams();
  if (next.view !== 'search') query.set('view', next.view);
  for (const name of ['q', 'inside', 'words']) if (next[name]) query.set(name, next[name]);
  if (next.find !== 'image') query.set('find', next.find);
  for (const one of next.where) query.append('where', one);
  for (const name of ['item', 'row', 'like']) if (next[name] !== null && next[name] !== undefined) query.set(name, next[name]);
  const text = query.toString();
  const address = text ? `/?${text}` : '/';
  if (address !== location.pathname + location.search) history[replace ? 'replaceState' : 'pushState'](null, '', address);
  if (!quiet) tell();
}

export const onState = listener => listeners.push(listener);
export const tell = () => { const now = state(); for (const listener of listeners) listener(now); };
window.addEventListener('popstate', tell);
