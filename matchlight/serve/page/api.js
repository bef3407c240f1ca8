// Questions to the server. Whatever goes wrong becomes one sentence that says what to do.

export class Problem extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

function said(detail) {
  if (typeof detail === 'string') return detail;
  if (Array.isArray(detail)) return detail.map(one => `${(one.where || []).slice(-1)}: ${one.message}`).join('; ');
  return '';
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, {credentials: 'same-origin', ...options});
  } catch (problem) {
    if (problem.name === 'AbortError') throw problem;
    throw new Problem('The server does not answer. Is “matchlight serve” still running?', 0);
  }
  const body = await answer.json().catch(problem => {
    if (problem.name === 'AbortError') throw problem;  // called off while the answer was on its way
    return null;
  });
  if (answer.ok && body !== null) return body;
  if (answer.status === 401) throw new Problem('The server asks for its token. Open the address that it printed.', 401);
  throw new Problem(said(body && body.detail) || `The server answered ${answer.status}.`, answer.status);
}

export function get(path, asked = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== '') query.append(name, one);
  }
  const text = query.toString();
  return ask(text ? `${path}?${text}` : path, {signal});
}

export const post = (path, value = {}) =>
  ask(path, {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(value)});

export function upload(blob, asked, signal) {
  const form = new FormData();
  form.append('file', blob, 'picture');
  for (const [name, value] of Object.entries(asked)) for (const one of [value].flat()) if (one !== '') form.append(name, one);
  return ask('/api/search/image', {method: 'POST', body: form, signal});
}
