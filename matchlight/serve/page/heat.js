// A match held to the picture: what answered a word is lit, the rest stays in the dark.

const WIDE = 64, HIGH = 48;

// Cells of a net become one spot each, which the eye sees blended; other regions are drawn on a finer field.
function net(regions) {
  const wide = new Set(regions.map(box => box[0].toFixed(3))).size, high = new Set(regions.map(box => box[1].toFixed(3))).size;
  return wide * high === regions.length ? [wide, high] : [WIDE, HIGH];
}

// How bright each spot of a small field is: the strongest region that covers it.
function field(regions, weights, [WIDE, HIGH]) {
  const light = new Float32Array(WIDE * HIGH);
  const most = Math.max(1e-9, ...weights);
  regions.forEach(([x0, y0, x1, y1], k) => {
    const value = Math.max(0, weights[k] / most);
    const top = Math.max(0, Math.floor(y0 * HIGH + 0.01)), low = Math.min(HIGH, Math.max(top + 1, Math.ceil(y1 * HIGH - 0.01)));
    const left = Math.max(0, Math.floor(x0 * WIDE + 0.01)), right = Math.min(WIDE, Math.max(left + 1, Math.ceil(x1 * WIDE - 0.01)));
    for (let y = top; y < low; y++) {
      for (let x = left; x < right; x++) light[y * WIDE + x] = Math.max(light[y * WIDE + x], value);
    }
  });
  return light;
}

export function light(canvas, regions, weights) {
  const pen = canvas.getContext('2d');
  pen.clearRect(0, 0, canvas.width, canvas.height);
  if (!regions.length || !weights || !weights.length) return;
  const small = document.createElement('canvas');
  const [wide, high] = net(regions);
  small.width = wide; small.height = high;
  const ink = small.getContext('2d'), image = ink.createImageData(wide, high);
  field(regions, weights, [wide, high]).forEach((value, k) => {
    const dark = 0.68 * (1 - value) ** 1.5, warm = 0.22 * value * value;
    const alpha = dark + warm * (1 - dark);
    image.data[4 * k] = 255 * warm / Math.max(alpha, 1e-6);
    image.data[4 * k + 1] = 150 * warm / Math.max(alpha, 1e-6);
    image.data[4 * k + 2] = 20;
    image.data[4 * k + 3] = 255 * alpha;
  });
  ink.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = true;
  pen.imageSmoothingQuality = 'high';
  pen.filter = `blur(${Math.round(canvas.width / Math.max(24, 2 * wide))}px)`;
  const edge = canvas.width / 24;  // drawn a little larger: a blur fades at its edges
  pen.drawImage(small, -edge, -edge, canvas.width + 2 * edge, canvas.height + 2 * edge);
  pen.filter = 'none';
  outline(pen, canvas, regions, weights);
}

// Regions that are few and of their own shapes (detected objects) get a frame; a grid's cells need none.
function outline(pen, canvas, regions, weights) {
  const areas = regions.map(([x0, y0, x1, y1]) => (x1 - x0) * (y1 - y0));
  if (Math.max(...areas) - Math.min(...areas) < 1e-3) return;
  const best = weights.map((value, k) => [value, k]).sort((a, b) => b[0] - a[0]).slice(0, 2);
  pen.strokeStyle = '#ffb347';
  best.forEach(([value, k], rank) => {
    if (value <= 0) return;
    const [x0, y0, x1, y1] = regions[k];
    pen.lineWidth = (rank ? 1 : 2.5) * canvas.width / 480;
    pen.strokeRect(x0 * canvas.width, y0 * canvas.height, (x1 - x0) * canvas.width, (y1 - y0) * canvas.height);
  });
}

// All words together: each region as bright as the word it answers best.
export const together = weights => weights.length
  ? weights[0].map((_, k) => Math.max(...weights.map(row => row[k]))) : [];
