// The console: asks the server every two seconds, and draws what it says. All texts go into the page as texts
// (textContent), so no value of the store can become markup.
"use strict";

const PERIOD_MS = 2000;
const byId = (id) => document.getElementById(id);

let session = { user: null, csrf: null, may_read: true, writable: false, may_write: false };
let timer = null;
let asked = 0; // number of the last look; an answer to an earlier one is dropped

// --- the server

class Refused extends Error {
  constructor(status, told) {
    super(told.error || `the server answered ${status}`);
    this.status = status;
    this.login = Boolean(told.login);
  }
}

async function call(name, body) {
  const options = { credentials: "same-origin", cache: "no-store", headers: {} };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    if (session.csrf) options.headers["X-CSRF-Token"] = session.csrf;
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`api/${name}`, options);
  } catch {
    throw new Refused(0, { error: "the server does not answer" });
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, told);
  return told;
}

function query(place) {
  return Object.entries(place)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join("&");
}

// --- elements

// h("td", { class: "n" }, "text", element): an element. Attributes that begin with "on" are listeners.
function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map(shownChild));
  return made;
}

function shownChild(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

// A table. A column is [head, function of a row, class].
function table(columns, rows) {
  const head = columns.map(([name, , kind]) => h("th", { class: kind, scope: "col" }, name));
  const body = rows.map((row) =>
    h("tr", {}, ...columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row)))),
  );
  const made = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body));
  return h("div", { class: "scroll" }, made);
}

function list(facts) {
  return h("dl", {}, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

// A part that can be opened; it stays open when the page is drawn again.
const opened = new Set();
function part(key, summary, ...children) {
  const made = h("details", { open: opened.has(key) }, h("summary", {}, ...summary), ...children);
  made.addEventListener("toggle", () => (made.open ? opened.add(key) : opened.delete(key)));
  return made;
}

// --- numbers and times

const number = (value) => (value === null || value === undefined ? "?" : value.toLocaleString("en"));
const rate = (value) => (value === null || value === undefined ? "" : `${value.toFixed(1)}/s`);

function age(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)}s`;
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  let left = Math.floor(seconds);
  const parts = [];
  for (const [unit, size] of units) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || parts.length) parts.push(`${count}${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

function time(ms) {
  const moment = new Date(ms);
  return Number.isNaN(moment.getTime()) ? String(ms) : moment.toISOString();
}

const put = (id) => time(Number(id.split("-")[0]));

function size(bytes) {
  let value = Number(bytes);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

function line(text, most = 90) {
  const one = text.replace(/\s+/g, " ");
  return one.length > most ? `${one.slice(0, most)}…` : one;
}

// --- values, jobs, failures

function value(told) {
  const cut = told.cut ? `, of ${size(told.bytes)} the beginning` : "";
  return [h("p", { class: "note" }, `${told.form}, ${size(told.bytes)}${cut}`), h("pre", {}, told.text)];
}

function payload(job) {
  const headers = Object.entries(job.headers);
  return [
    headers.length ? list(headers.map(([name, text]) => [`header ${name}`, text])) : null,
    ...(job.value ? value(job.value) : fields(job.fields || [])),
  ];
}

function fields(named) {
  return named.flatMap(([name, told]) => [h("h3", {}, name), ...value(told)]);
}

const beginning = (job) => line(job.value ? job.value.text : "(no value)");

function failure(one) {
  return [
    h("p", {}, `${time(one.at_ms)}, delivery ${one.delivery}, worker ${one.worker}: ${line(one.error, 200)}`),
    one.traceback ? h("pre", {}, one.traceback) : null,
  ];
}

// --- views: each returns { look, draw }

const places = {
  queues: () => ({ look: (at) => `queues?${query({ db: at.db })}`, draw: drawQueues }),
  queue: () => ({
    look: (at) => `queue?${query({ db: at.db, key: at.key, group: at.group, before: at.before || "" })}`,
    draw: drawQueue,
  }),
  streams: () => ({ look: (at) => `streams?${query({ db: at.db })}`, draw: drawStreams }),
  stream: () => ({ look: (at) => `stream?${query({ db: at.db, key: at.key })}`, draw: drawStream }),
  store: () => ({ look: () => "overview", draw: drawStore }),
};

function place() {
  const [name, words] = location.hash.replace(/^#\/?/, "").split("?");
  const at = Object.fromEntries(new URLSearchParams(words || ""));
  at.db = at.db || byId("db").value || "0";
  return { name: Object.hasOwn(places, name) ? name : "queues", at };
}

const link = (name, at, text) => h("a", { href: `#/${name}?${query(at)}` }, text);

function drawQueues(told, at) {
  const held = (row) => Object.values(row.in_flight).reduce((sum, count) => sum + count, 0);
  const columns = [
    ["queue", (row) => link("queue", { db: at.db, key: row.ref, group: row.group_ref }, row.name)],
    ["group", (row) => row.group],
    ["depth", (row) => number(row.depth), "n"],
    ["waiting", (row) => number(row.waiting), "n"],
    ["in flight", (row) => number(held(row)), "n"],
    ["paused", (row) => number(row.paused), "n"],
    ["scheduled", (row) => number(row.scheduled), "n"],
    ["dead", (row) => h("span", { class: row.dead ? "bad" : "" }, number(row.dead)), "n"],
    ["put", (row) => rate(row.put_per_second), "n"],
    ["done", (row) => rate(row.done_per_second), "n"],
    ["oldest", (row) => age(row.oldest_seconds), "n"],
  ];
  return [
    h("h2", {}, "Queues"),
    told.queues.length ? table(columns, told.queues) : h("p", {}, "There are no queues in this database."),
    some(told),
  ];
}

function some(told) {
  return told.complete ? null : h("p", { class: "note" }, "The database has more keys than are shown here.");
}

function drawQueue(told, at) {
  const mine = { db: Number(at.db), key: at.key, group: at.group };
  const workers = Object.entries(told.in_flight);
  const button = (text, kind, act) =>
    h("button", { type: "button", class: kind, disabled: !session.may_write, onclick: act }, text);
  const dead = told.dead_jobs.map((job) =>
    part(
      `dead ${job.id}`,
      [`${time(job.died_ms)}  ${line(job.reason)}`, h("span", { class: "note" }, beginning(job))],
      h(
        "p",
        { class: "buttons" },
        button("Redrive", "main", () => change("redrive", { ...mine, ids: [job.id] }, "Put this job back?", "Redrive")),
        button("Delete", "danger", () => change("purge-dead", { ...mine, ids: [job.id] }, "Delete this job for good?", "Delete")),
      ),
      list([
        ["reason", job.reason],
        ["dead job", job.id],
        ["original", `${job.original_id}, put ${put(job.original_id)}`],
        ["deliveries", `${job.deliveries}, to ${job.workers.join(", ") || "?"} of ${job.group}`],
      ]),
      ...payload(job),
      ...job.failures.flatMap(failure),
    ),
  );
  return [
    h("p", {}, h("a", { href: "#/queues" }, "Queues"), " / ", link("stream", { db: at.db, key: at.key }, told.name)),
    h("h2", {}, `${told.name}, group ${told.group}`),
    list([
      ["depth", `${number(told.depth)} unfinished, the oldest ${age(told.oldest_seconds) || "–"}`],
      ["waiting", number(told.waiting)],
      ["in flight", workers.map(([name, count]) => `${name}: ${number(count)}`).join(", ") || "0"],
      ["paused", number(told.paused)],
      ["scheduled", number(told.scheduled)],
      ["dead", number(told.dead)],
      ["rates", `put ${rate(told.put_per_second) || "?"}, done ${rate(told.done_per_second) || "?"}`],
      ["finished", `${number(told.kept)} kept`],
    ]),
    session.may_write ? null : h("p", { class: "note" }, whyReadOnly()),
    h(
      "p",
      { class: "buttons" },
      button("Redrive all dead", "main", () =>
        change("redrive", { ...mine, all: true }, `Put all dead jobs of ${told.name} back?`, "Redrive")),
      button("Delete all dead", "danger", () =>
        change("purge-dead", { ...mine, all: true }, `Delete all dead jobs of ${told.name} for good?`, "Delete")),
      button("Purge waiting", "danger", () =>
        change("purge", mine, `Delete every waiting and paused job of ${told.name} for good?`, "Purge")),
    ),
    h("h3", {}, "Dead jobs, newest first"),
    dead.length ? h("div", { id: "dead" }, ...dead) : h("p", { class: "note" }, "none"),
    told.dead_more
      ? h("p", {}, link("queue", { ...at, before: told.dead_jobs.at(-1).id }, "older"))
      : null,
    h("h3", {}, "In hand, or paused until the next try"),
    ...rows(told.held, (job) =>
      part(
        `held ${job.id}`,
        [
          `${job.id}  ${job.consumer || "paused"}, delivery ${job.deliveries}, for ${age(job.idle_ms / 1000)}`,
          h("span", { class: "note" }, beginning(job)),
        ],
        ...payload(job),
      )),
    h("h3", {}, "Next jobs"),
    ...rows(told.jobs, (job) =>
      part(`job ${job.id}`, [job.id, h("span", { class: "note" }, beginning(job))], h("p", {}, `put ${put(job.id)}`), ...payload(job))),
    h("h3", {}, "Scheduled jobs"),
    ...rows(told.later, (job) =>
      part(`later ${job.id}`, [`due ${time(job.due_ms)}`, h("span", { class: "note" }, beginning(job))], ...payload(job))),
    h("h3", {}, "Failures, newest first"),
    ...rows(told.latest_failures, (one) =>
      part(
        `failure ${one.job} ${one.at_ms} ${one.delivery}`,
        [`${time(one.at_ms)}  ${one.job}, delivery ${one.delivery}`, h("span", { class: "note" }, line(one.error))],
        ...failure(one),
      )),
  ];
}

function rows(found, draw) {
  return found.length ? found.map(draw) : [h("p", { class: "note" }, "none")];
}

function whyReadOnly() {
  if (!session.writable) return "This console only reads: the option console-write is no.";
  return "Sign in to redrive or delete jobs.";
}

function drawStreams(told, at) {
  const sum = (row, name) =>
    row.groups.some((group) => group[name] === null) ? null : row.groups.reduce((all, group) => all + group[name], 0);
  const columns = [
    ["stream", (row) => link("stream", { db: at.db, key: row.ref }, row.key)],
    ["length", (row) => number(row.length), "n"],
    ["added", (row) => number(row.added), "n"],
    ["groups", (row) => number(row.groups.length), "n"],
    ["lag", (row) => (row.groups.length ? number(sum(row, "lag")) : ""), "n"],
    ["pending", (row) => (row.groups.length ? number(sum(row, "pending")) : ""), "n"],
    ["last entry", (row) => row.last_id],
  ];
  return [
    h("h2", {}, "Streams"),
    told.streams.length ? table(columns, told.streams) : h("p", {}, "There are no streams in this database."),
    some(told),
  ];
}

function drawStream(told) {
  const members = [
    ["consumer", (row) => row.name],
    ["pending", (row) => number(row.pending), "n"],
    ["idle", (row) => age(row.idle / 1000), "n"],
    ["inactive", (row) => (row.inactive < 0 ? "never active" : age(row.inactive / 1000)), "n"],
  ];
  const oldest = [
    ["entry", (row) => row.id],
    ["consumer", (row) => row.consumer || "nobody"],
    ["since", (row) => age(row.idle_ms / 1000), "n"],
    ["deliveries", (row) => number(row.deliveries), "n"],
  ];
  return [
    h("p", {}, h("a", { href: "#/streams" }, "Streams")),
    h("h2", {}, told.key),
    list([
      ["length", number(told.length)],
      ["added", number(told.added)],
      ["last entry", told.last_id],
      ["greatest deleted", told.max_deleted_id],
      ["nodes", number(told.nodes)],
    ]),
    ...told.groups.flatMap((group) => [
      h("h3", {}, `Group ${group.group}`),
      list([
        ["lag", number(group.lag)],
        ["pending", number(group.pending)],
        ["last delivered", `${group.last_id}, ${number(group.read)} read`],
      ]),
      group.members.length ? table(members, group.members) : null,
      group.oldest.length
        ? part(`pending ${group.ref}`, ["The first pending entries"], table(oldest, group.oldest))
        : null,
    ]),
    h("h3", {}, "Newest entries"),
    ...rows(told.entries, (entry) =>
      part(
        `entry ${entry.id}`,
        [entry.id, h("span", { class: "note" }, line(entry.fields.map(([name, one]) => `${name} ${one.text}`).join("  ")))],
        ...fields(entry.fields),
      )),
  ];
}

function drawStore(told) {
  const of = (section) => told.info[section] || {};
  const ours = of("tidelog");
  const server = of("server");
  const replication = of("replication");
  const behind = Number(ours.next_lsn) - 1;
  const sections = Object.entries(told.info).map(([name, facts]) =>
    part(`info ${name}`, [name], list(Object.entries(facts))));
  return [
    h("h2", {}, "Store"),
    list([
      ["path", ours.path],
      ["version", `tidelog ${ours.tidelog_version}, as Redis ${server.redis_version}`],
      ["up", age(Number(server.uptime_in_seconds))],
      ["role", replication.role === "slave" ? `follower of ${replication.master_host}:${replication.master_port}, link ${replication.master_link_status}` : `leader of ${replication.connected_slaves} followers`],
      ["clients", `${of("clients").connected_clients}, ${of("clients").blocked_clients} of them blocked`],
      ["commands", `${of("stats").instantaneous_ops_per_sec}/s`],
      ["memory", of("memory").used_memory_human],
    ]),
    h("h3", {}, "Log and checkpoint"),
    list([
      ["last record", `LSN ${number(behind)}`],
      ["on the disk", `LSN ${number(Number(ours.synced_lsn))}, fsync ${ours.fsync}`],
      ["exposed", `${size(ours.unsynced_bytes)}, ${age(Number(ours.unsynced_seconds))} old`],
      ["checkpoint", `LSN ${number(Number(ours.checkpoint_lsn || 0))}, made ${Number(ours.checkpoint_unix_ms) ? time(Number(ours.checkpoint_unix_ms)) : "never"}`],
      ["log behind it", `${size(ours.bytes_since_checkpoint || 0)}, ${number(Number(ours.changes_since_checkpoint || 0))} records`],
      ["refuses writes", ours.refusal || ours.failure || "no"],
    ]),
    h("h3", {}, "All fields"),
    ...sections,
  ];
}

// --- changes

async function change(name, body, question, verb) {
  if (!(await agreed(question, verb))) return;
  let done = 0;
  try {
    let told = { more: true, last: "" };
    while (told.more) {
      told = await call(name, { ...body, last: told.last });
      done += told.done;
      state(`${number(done)} jobs: ${verb.toLowerCase()}`);
    }
    await look();
    state(`${number(done)} jobs: ${verb.toLowerCase()}, done`);
  } catch (error) {
    failed(error);
  }
}

let answered = null; // takes the answer to the question that is open

function agreed(question, verb) {
  byId("ask-text").textContent = question;
  byId("ask-yes").textContent = verb;
  byId("ask").showModal();
  return new Promise((resolve) => {
    answered = resolve;
  });
}

// Not the dialog's own event `close`: it comes later, when the next question may be open.
function answer(yes) {
  const resolve = answered;
  answered = null;
  byId("ask").close();
  if (resolve) resolve(yes);
}

// --- the login

async function signIn() {
  try {
    session = await call("login", { user: byId("login-user").value, password: byId("login-password").value });
    byId("login-password").value = "";
    byId("login").close();
    showSession();
    await look();
  } catch (error) {
    byId("login-why").textContent = error.message;
    byId("login-why").className = "bad";
  }
}

function openLogin(why) {
  const dialog = byId("login");
  if (dialog.open) return;
  byId("login-why").textContent = why;
  byId("login-why").className = "note";
  dialog.showModal();
}

function showSession() {
  byId("who").textContent = session.user === null ? "" : session.user;
  const sign = byId("sign");
  sign.hidden = false;
  sign.textContent = session.user === null ? "Sign in" : "Sign out";
}

async function signOut() {
  try {
    await call("logout", {});
  } catch (error) {
    failed(error);
  }
  session = await call("session");
  showSession();
  await look();
}

// --- the loop

function state(text, bad) {
  byId("state").textContent = text;
  byId("state").className = bad ? "bad" : "";
}

function failed(error) {
  state(error.message, true);
  if (error.status === 401 && session.user !== null) {
    session = { ...session, user: null, csrf: null, may_write: false };
    showSession();
  }
  if (error.login) openLogin(error.message);
}

// Whether somebody reads or marks something that a new drawing would take away.
function occupied() {
  const selection = document.getSelection();
  return Boolean(selection && selection.type === "Range") || byId("ask").open;
}

async function look() {
  const mine = ++asked;
  const { name, at } = place();
  const view = places[name]();
  for (const each of document.querySelectorAll("nav a")) {
    const current = each.getAttribute("href") === `#/${name}` || each.getAttribute("href") === `#/${name}s`;
    if (current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  try {
    const told = await call(view.look(at));
    if (mine !== asked) return;
    byId("view").replaceChildren(...view.draw(told, at).filter((each) => each !== null));
    document.body.dataset.drawn = name;
    state("");
  } catch (error) {
    if (mine === asked) failed(error);
  }
}

async function turn() {
  clearTimeout(timer);
  if (!document.hidden && !occupied() && !byId("login").open) await look();
  timer = setTimeout(turn, PERIOD_MS);
}

async function begin() {
  for (let db = 1; db < 16; db++) byId("db").append(h("option", {}, String(db)));
  byId("db").addEventListener("change", () => {
    location.hash = place().name === "streams" || place().name === "stream" ? "#/streams" : "#/queues";
    look();
  });
  byId("sign").addEventListener("click", () => (session.user === null ? openLogin("") : signOut()));
  byId("login-form").addEventListener("submit", (event) => {
    event.preventDefault();
    signIn();
  });
  byId("login-cancel").addEventListener("click", () => byId("login").close());
  byId("ask-yes").addEventListener("click", () => answer(true));
  byId("ask-no").addEventListener("click", () => answer(false));
  byId("ask").addEventListener("cancel", () => answer(false)); // Escape
  window.addEventListener("hashchange", look);
  document.addEventListener("visibilitychange", turn);
  try {
    session = await call("session");
    showSession();
  } catch (error) {
    failed(error);
  }
  turn();
}

begin();
