// Lines over time, drawn as SVG from the numbers in #rates. Two lines a chart; the axis begins at zero.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 132, ROWS = 3;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at && count < 100 ? +count.toFixed(1) : Math.round(count)}\u202f${units[at]}`;
}

function label(value, unit) {
  if (unit === "bytes") return `${bytes(value)}/s`;
  if (unit === "ms") return `${+value.toFixed(value < 10 ? 1 : 0)}\u202fms`;
  return `${Math.round(value).toLocaleString("en").replaceAll(",", "\u202f")}/s`;
}

// The next number that reads well: 1, 2 or 5 times a power of ten, or of two for bytes.
function roof(value, unit) {
  if (value <= 0) return unit === "bytes" ? 1024 : 1;
  if (unit === "bytes") return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((each) => each * power >= value);
}

const clock = (ms) => new Date(ms).toISOString().slice(11, 16);

function draw(chart, points) {
  const names = chart.dataset.chart.split(","), unit = chart.dataset.unit;
  const high = roof(Math.max(...points.flatMap((point) => names.map((name) => point[name]))), unit);
  const first = points[0].atMs, last = Math.max(points.at(-1).atMs, first + 1);
  const x = (point) => ((point.atMs - first) / (last - first)) * WIDTH;
  const y = (value) => HEIGHT - (value / high) * (HEIGHT - 14);
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": names.join(" and ") });
  for (let row = 0; row <= ROWS; row += 1) {
    const at = y((high * row) / ROWS);
    element("line", { class: "grid-line", x1: 0, x2: WIDTH, y1: at, y2: at }, svg);
  }
  names.forEach((name, number) => {
    const line = points.map((point) => `${x(point).toFixed(1)},${y(point[name]).toFixed(1)}`).join("L");
    if (number === 0) element("path", { class: "area s0", d: `M0,${HEIGHT}L${line}L${WIDTH},${HEIGHT}Z` }, svg);
    element("path", { class: `s${number}`, d: `M${line}` }, svg);
  });
  const top = document.createElement("span");
  top.className = "top";
  top.textContent = label(high, unit);
  const axis = document.createElement("div");
  axis.className = "axis";
  for (const text of [`${clock(first)} UTC`, clock(last)]) {
    const edge = document.createElement("span");
    edge.textContent = text;
    axis.append(edge);
  }
  chart.replaceChildren(svg, top, axis);
}

export function drawCharts() {
  const source = document.getElementById("rates");
  if (!source) return;
  const points = JSON.parse(source.textContent);
  if (points.length) for (const chart of document.querySelectorAll("[data-chart]")) draw(chart, points);
}
