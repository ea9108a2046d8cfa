// Values under the pointer, and figures as SVG and CSV files. Works offline, without libraries.
"use strict";

const REACH = 50; // distance in the figure's units up to which a point is shown
const tooltip = document.querySelector("#tooltip");
let marker = null; // around the point

for (const picture of document.querySelectorAll(".picture")) {
  const svg = picture.querySelector("svg");
  let points = null;
  const show = event => {
    points ??= locate(readData(picture));
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const point = nearest(points, place);
    if (point) showPoint(svg, point, event);
    else hide();
  };
  for (const type of ["pointerdown", "pointermove"]) svg.addEventListener(type, show);
  svg.addEventListener("pointerleave", event => { if (event.pointerType !== "touch") hide(); });
}
document.addEventListener("pointerdown", event => { if (!event.target.closest(".picture")) hide(); });
document.addEventListener("scroll", hide, { passive: true });

for (const button of document.querySelectorAll(".downloads button")) {
  button.addEventListener("click", () => {
    const picture = button.closest("figure").querySelector(".picture");
    const content = button.value === "svg" ? toSvg(picture) : toCsv(readData(picture));
    const type = button.value === "svg" ? "image/svg+xml" : "text/csv";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = `${picture.dataset.name}.${button.value}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

function readData(picture) {
  return JSON.parse(picture.querySelector("script").textContent);
}

// Returns all points of a figure in the units of its SVG.
function locate(data) {
  const points = [];
  for (const series of data.series) {
    const axes = data.axes[series.axes];
    const [left, top, right, bottom] = axes.box;
    const xs = typeof series.x === "string" ? series.columns[series.x] : series.x;
    const ys = typeof series.y === "string" ? series.columns[series.y] : series.y;
    xs.forEach((value, row) => {
      if (value === null || ys[row] === null) return;
      const u = fraction(value, axes.x), v = fraction(ys[row], axes.y);
      if (u < -0.001 || u > 1.001 || v < -0.001 || v > 1.001) return;
      points.push({ series, axes, row, x: left + u * (right - left), y: bottom + v * (top - bottom) });
    });
  }
  return points;
}

function fraction(value, { low, high, log }) {
  const scale = log ? Math.log : number => number;
  return (scale(value) - scale(low)) / (scale(high) - scale(low));
}

function nearest(points, place) {
  let best = null, shortest = REACH;
  for (const point of points) {
    const distance = Math.hypot(point.x - place.x, point.y - place.y);
    if (distance < shortest) [best, shortest] = [point, distance];
  }
  return best;
}

function showPoint(svg, { series, axes, row, x, y }, event) {
  marker ??= document.createElementNS(svg.namespaceURI, "circle");
  for (const [name, value] of Object.entries({ class: "marker", cx: x, cy: y, r: 3.5 })) marker.setAttribute(name, value);
  svg.append(marker);
  const mark = document.createElement("i");
  mark.className = "mark";
  mark.style.background = series.color;
  const title = document.createElement("b");
  const { metric, seed, ...names } = series.names;
  title.textContent = [...Object.values(names), ...(seed ? [`seed ${seed}`] : [])].join(", ");
  tooltip.replaceChildren(mark, title);
  const labels = { x: axes.x.label, y: metric, iqm: `IQM of ${metric}` };
  for (const [name, values] of Object.entries(series.columns)) {
    if (values[row] === null) continue;
    const line = document.createElement("div");
    line.textContent = `${labels[name] || name}: ${format(values[row])}`;
    tooltip.append(line);
  }
  tooltip.hidden = false;
  const { offsetWidth, offsetHeight } = tooltip;
  const above = event.clientY - offsetHeight - 14;
  tooltip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - offsetWidth - 8))}px`;
  tooltip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
}

function hide() {
  tooltip.hidden = true;
  marker?.remove();
}

function format(value) {
  return typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 5 }) : value;
}

// Returns the figure as a file of its own: with the colours of light mode, and a legend of its groups.
function toSvg(picture) {
  const copy = picture.querySelector("svg").cloneNode(true);
  copy.querySelector(".marker")?.remove();
  const { width, height } = copy.viewBox.baseVal;
  const colors = new Map(readData(picture).series.map(({ names, color }) => [names.group, color]));
  colors.delete(undefined);
  [...colors].forEach(([group, color], row) => {
    const text = document.createElementNS(copy.namespaceURI, "text");
    const style = { x: 8, y: height + 12 * row + 9, fill: color, "font-size": "8.5px", "font-family": "sans-serif" };
    for (const [name, value] of Object.entries(style)) text.setAttribute(name, value);
    text.textContent = `■ ${group}`;
    copy.append(text);
  });
  const size = { width: `${width}pt`, height: `${height + 12 * colors.size}pt` };
  const viewBox = `0 0 ${width} ${height + 12 * colors.size}`;
  for (const [name, value] of Object.entries({ ...size, viewBox })) copy.setAttribute(name, value);
  const text = new XMLSerializer().serializeToString(copy);
  return text.replaceAll("currentColor", "#1d2330").replaceAll("var(--line)", "#dde1e8");
}

// Returns the data of a figure: a row for each point, and a column for each name.
function toCsv(data) {
  const columns = [...new Set(data.series.flatMap(({ names, columns }) => Object.keys({ ...names, ...columns })))];
  const rows = [columns];
  for (const { names, columns: values } of data.series) {
    const count = Object.values(values)[0].length;
    for (let row = 0; row < count; row++) rows.push(columns.map(name => values[name]?.[row] ?? names[name] ?? ""));
  }
  return rows.map(row => row.map(quote).join(",") + "\n").join("");
}

function quote(value) {
  return /[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
}
