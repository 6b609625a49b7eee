// Elements of the page: tables, parts that open, times, sparklines. All texts go into the page as texts (textContent),
// so no value of the store can become markup.

// h("td", { class: "n" }, "text", element): an element. Attributes that begin with "on" are listeners.
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  made.append(...shown.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

// A table; on a narrow screen each row is a block, and each cell names its column. A column is [head, function of a row,
// class].
export function table(columns, rows) {
  const head = columns.map(([name, , kind]) => h("th", { class: kind, scope: "col" }, name));
  const body = rows.map((row) =>
    h("tr", {}, columns.map(([name, cell, kind]) => h("td", { class: kind, "data-label": name }, cell(row)))),
  );
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function list(facts) {
  const shown = facts.filter((fact) => fact !== null);
  return h("dl", {}, shown.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// A part that can be opened; it stays open when the page is drawn again.
const opened = new Set();
export function part(key, summary, ...children) {
  const made = h("details", { open: opened.has(key) }, h("summary", { "data-key": key }, summary), children);
  made.addEventListener("toggle", () => (made.open ? opened.add(key) : opened.delete(key)));
  return made;
}

export const note = (text) => h("p", { class: "note" }, text);
export const soft = (text) => h("span", { class: "note" }, text);
export const rows = (found, draw) => (found.length ? found.map(draw) : [note("none")]);

export const link = (name, at, text) => h("a", { href: `#/${name}?${query(at)}` }, text);

export function query(place) {
  return Object.entries(place)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join("&");
}

// --- numbers and times

export const number = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en"));
export const rate = (value) => (value === null || value === undefined ? "" : `${value.toFixed(1)}/s`);

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

export function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)}s`;
  let left = Math.floor(seconds);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || parts.length) parts.push(`${count}${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

// "90", "90s", "15m", "2h", "1d": milliseconds; null if it is none of these.
export function duration(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*$/.exec(text);
  if (!found) return null;
  const size = Object.fromEntries(UNITS)[found[2] || "s"];
  return Math.round(Number(found[1]) * size * 1000);
}

export function time(ms) {
  const moment = new Date(ms);
  return Number.isNaN(moment.getTime()) ? String(ms) : moment.toISOString().replace("T", " ");
}

// How far a job has come.
export const progress = (told) => `${Math.floor(told.fraction * 100)} % ${told.text}`;

export const put = (id) => Number(id.split("-")[0]);

// A time as it is from now, and the exact one beside it.
export function when(ms, now) {
  const exact = time(ms);
  const away = Math.round((ms - now) / 1000);
  const far = Math.abs(away) < 10 ? `${Math.abs(away)}s` : age(Math.abs(away));
  const text = away > 0 ? `in ${far}` : `${far} ago`;
  return h("span", {}, h("time", { datetime: exact.replace(" ", "T"), title: exact }, text), " ", soft(exact));
}

export function size(bytes) {
  let value = Number(bytes);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

export function line(text, most = 90) {
  const one = text.replace(/\s+/g, " ");
  return one.length > most ? `${one.slice(0, most)}…` : one;
}

// --- values, jobs, failures

export function value(told) {
  const cut = told.cut ? `, of ${size(told.bytes)} the beginning` : "";
  return [note(`${told.form}, ${size(told.bytes)}${cut}`), h("pre", {}, told.text)];
}

export const fields = (named) => named.flatMap(([name, told]) => [h("h3", {}, name), value(told)]);

export function payload(job) {
  const headers = Object.entries(job.headers);
  return [
    headers.length ? list(headers.map(([name, text]) => [`header ${name}`, text])) : null,
    job.value ? value(job.value) : fields(job.fields || []),
  ];
}

export const beginning = (job) => line(job.value ? job.value.text : "(no value)");

export function failure(one, now) {
  return [
    h("p", {}, when(one.at_ms, now), `, delivery ${one.delivery}, worker ${one.worker}: ${line(one.error, 200)}`),
    one.traceback ? h("pre", {}, one.traceback) : null,
  ];
}

// --- the last hour

const MINUTES = 60;
const SERIES_MAX = 300;
const STORED = "tidelog-last-hour";
const history = new Map(restored());

function restored() {
  try {
    return JSON.parse(sessionStorage.getItem(STORED)) || [];
  } catch {
    return []; // storage is off, or another page has written there
  }
}

// Note a figure of this minute. The page keeps one value of a minute, for an hour and for SERIES_MAX figures.
export function noted(name, figure, now) {
  if (figure === null || figure === undefined) return;
  const minute = Math.floor(now / 60000);
  const known = (history.get(name) || []).filter(([at]) => at > minute - MINUTES && at < minute);
  history.delete(name);
  history.set(name, [...known, [minute, figure]]);
  if (history.size > SERIES_MAX) history.delete(history.keys().next().value);
}

export function keepHistory() {
  try {
    sessionStorage.setItem(STORED, JSON.stringify([...history]));
  } catch {
    // storage is off or full: a reload begins anew
  }
}

const WIDTH = 120;
const HEIGHT = 24;

// The last hour of a figure as a line, minutes without a look left out.
export function sparkline(name, what, now) {
  const points = history.get(name) || [];
  const minute = Math.floor(now / 60000);
  const figures = points.map(([, figure]) => figure);
  const most = Math.max(...figures, 0);
  const x = (at) => WIDTH - 2 - ((minute - at) * (WIDTH - 4)) / (MINUTES - 1);
  const y = (figure) => HEIGHT - 2 - (most ? (figure * (HEIGHT - 4)) / most : 0);
  let last = null;
  const path = points.flatMap(([at, figure]) => {
    const step = [last === at - 1 ? "L" : "M", x(at).toFixed(1), y(figure).toFixed(1)];
    if (last !== at - 1) step.push("h", "0"); // one point alone is a dot
    last = at;
    return step;
  });
  const text = points.length
    ? `${what} in the last hour: ${Math.min(...figures)} to ${most}, seen in ${points.length} minutes`
    : `${what}: not seen yet`;
  const made = (tag, attributes, ...children) =>
    filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const box = { class: "spark", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" };
  return made("svg", { ...box, "aria-label": text }, made("title", {}, text), made("path", { d: path.join(" ") }));
}
