// Elements from plain values. Text is always a text node: nothing from the data or the server is ever read as HTML.

export const at = id => document.getElementById(id);

export function make(tag, named = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(named)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') node.className = value;
    else if (name === 'vars') for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const one of inside.flat()) if (one !== null && one !== undefined && one !== false) node.append(one);
  return node;
}

export const button = (text, onclick, named = {}) => make('button', {type: 'button', onclick, ...named}, text);

export const number = value => Number(value).toLocaleString('en');

export const plural = (count, one, many = one + 's') => `${number(count)} ${count === 1 ? one : many}`;

// A picture in a box of its own shape: nothing moves when it arrives.
export function picture(hit, version, named = {}) {
  const image = make('img', {src: `/images/${hit.id}?v=${version}`, width: hit.width, height: hit.height,
    loading: 'lazy', decoding: 'async', alt: hit.caption || hit.image || '', ...named});
  image.style.aspectRatio = `${hit.width} / ${hit.height}`;
  image.addEventListener('error', () => image.classList.add('lost'));
  return image;
}

// The same in full, once it has arrived, where the server has the data; until then the thumbnail stands in.
let whole = false;
export const haveOriginals = given => { whole = given; };
export function large(hit, version, named = {}) {
  const image = picture(hit, version, {loading: 'eager', ...named});
  if (whole) {
    const better = new Image();
    better.onload = () => { image.src = better.src; image.classList.add('whole'); };
    better.src = `/images/${hit.id}?v=${version}&size=full`;
  }
  return image;
}

let hiding = 0;
export function toast(message) {
  const node = at('toast');
  node.textContent = message;
  node.classList.add('shown');
  clearTimeout(hiding);
  hiding = setTimeout(() => node.classList.remove('shown'), 5000);
}

export const typing = event => event.ctrlKey || event.metaKey || event.altKey ||
  (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !['range', 'file'].includes(event.target.type));
