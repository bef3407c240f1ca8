// A picture dropped anywhere on the window, or pasted, is a search.
import {at, toast} from './dom.js';
import {searchWith} from './search.js';

const pictures = files => [...(files || [])].filter(file => file.type.startsWith('image/') || !file.type);

export function start() {
  let depth = 0;
  const over = shown => at('drop').classList.toggle('shown', shown);
  const carries = event => [...((event.dataTransfer && event.dataTransfer.types) || [])].includes('Files');
  addEventListener('dragenter', event => { if (carries(event)) { event.preventDefault(); depth++; over(true); } });
  addEventListener('dragover', event => { if (carries(event)) event.preventDefault(); });
  addEventListener('dragleave', event => { if (carries(event)) { depth = Math.max(0, depth - 1); over(depth > 0); } });
  addEventListener('drop', event => {
    if (!carries(event)) return;
    event.preventDefault();
    depth = 0; over(false);
    const [file] = pictures(event.dataTransfer.files);
    if (file) searchWith(file); else toast('That is no picture. Drop a JPEG, PNG, WebP, GIF, BMP or TIFF file.');
  });
  addEventListener('paste', event => {
    const [file] = pictures(event.clipboardData && event.clipboardData.files);
    if (file) { event.preventDefault(); searchWith(file); }
  });
}
