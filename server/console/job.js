// One job, the search for jobs, and the forms that put and move them.
import {
  duration, failure, h, line, link, list, note, number, payload, progress, put, query, rows, soft, table, value, when,
} from "./elements.js";

const SAYS = {
  waiting: "It waits for a worker.",
  running: "A worker has it.",
  paused: "It failed, or was given back, and waits for its next try.",
  delayed: "It is delayed.",
  dead: "It was given up.",
  done: "It is done.",
  cancelled: "It was cancelled.",
  gone: "It is gone; only its failures are left.",
};
const lives = new Map(); // what the log told, by place and ID

export const jobAt = (at, place, id) => ({ db: at.db, key: place.ref, group: place.group_ref, id });

export function drawJob(told, at, page) {
  // The job has another ID by now: the next look finds it at once.
  if (told.id !== at.id) history.replaceState(null, "", `#/job?${query({ ...at, id: told.id })}`);
  const mine = { db: Number(at.db), key: at.key, id: told.id };
  const now = told.now_ms;
  const first = told.original_id || told.first;
  return [
    h("p", {}, link("queue", { db: at.db, key: at.key, group: at.group }, told.name), ` / job ${told.id}`),
    h("h2", {}, `Job ${told.id}`),
    h("p", { id: "status" }, SAYS[told.state]),
    list([
      ["put", when(put(first || told.id), now)],
      first && first !== told.id ? ["first ID", first] : null,
      told.state === "running" ? ["worker", `${told.consumer}, delivery ${told.deliveries}`] : null,
      told.idle_ms !== undefined ? ["lease renewed", when(now - told.idle_ms, now)] : null,
      told.progress ? ["progress", progress(told.progress)] : null,
      told.state === "paused" ? ["deliveries", number(told.deliveries)] : null,
      told.due_ms !== undefined ? ["due", when(told.due_ms, now)] : null,
      told.state === "dead" ? ["died", when(told.died_ms, now)] : null,
      told.reason ? ["reason", told.reason] : null,
      told.workers ? ["deliveries", `${told.deliveries}, to ${told.workers.join(", ") || "?"}`] : null,
      told.priority ? ["priority", told.priority] : null,
      told.key ? ["key", told.key] : null,
    ]),
    page.whyReadOnly() ? note(page.whyReadOnly()) : null,
    h("p", { class: "buttons" }, buttons(told, mine, page)),
    told.value || told.fields ? [h("h3", {}, "Value"), ...payload(told)] : null,
    told.result ? [h("h3", {}, "Result"), ...value(told.result)] : null,
    h("h3", {}, "Failures"),
    ...rows(told.failures && told.failures.length ? told.failures : told.latest_failures, (one) =>
      h("div", {}, failure(one, now))),
    h("h3", {}, "Its life"),
    life(told, at, page),
  ];
}

function buttons(told, mine, page) {
  if (told.state === "delayed") {
    return [
      page.button("Run now", "main", () =>
        page.change("move", { ...mine, delay_ms: 0 }, "Make this job due now, before its time?", "Run now")),
      page.button("Move", "main", () => moveJob(mine, page)),
      page.button("Cancel job", "danger", () =>
        page.change("cancel", mine, "Cancel this delayed job for good? No worker will get it.", "Cancel job")),
    ];
  }
  if (["waiting", "running", "paused"].includes(told.state)) {
    const warning = told.state === "running" ? "Its worker is told, and what it says of the job counts no more." : "No worker will get it.";
    return [
      page.button("Cancel job", "danger", () =>
        page.change("cancel", mine, `Cancel this job for good? ${warning}`, "Cancel job")),
    ];
  }
  if (told.state !== "dead") return [];
  const dead = { ...mine, ids: [told.id] };
  return [
    page.button("Retry now", "main", () =>
      page.change("redrive", dead, "Put this job back at the end of the queue, as a new job?", "Retry now")),
    page.button("Delete", "danger", () =>
      page.change("purge-dead", dead, "Delete this dead job for good?", "Delete")),
  ];
}

// The log tells the whole life, if the page comes from `tidelog console PATH`. It is replayed, so only when asked.
function life(told, at, page) {
  const id = told.original_id || told.id;
  if (!page.session.tells) return note(`On the machine of the store, \`tidelog why PATH ${told.name} ${id}\` tells it.`);
  const known = lives.get(`${at.db} ${at.key} ${id}`);
  if (known) {
    return h("ol", { id: "life" }, known.map((event) =>
      h("li", {}, when(event.at_ms, told.now_ms), ` ${event.text} `, soft(`LSN ${event.lsn}`))));
  }
  const ask = async () => {
    page.state("reading the log");
    try {
      const found = await page.call(`life?${query({ key: at.key, id })}`);
      if (lives.size > 20) lives.clear();
      lives.set(`${at.db} ${at.key} ${id}`, found.events);
      await page.look();
    } catch (error) {
      page.failed(error);
    }
  };
  return h("p", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: ask }, "Tell it from the log"));
}

// --- forms

export function moveJob(mine, page) {
  page.form("Move the job", [{ id: "delay", label: "due in, such as 90s, 15m, 2h", value: "15m" }], "Move", (given) => {
    const delay = duration(given.delay);
    if (delay === null) throw new Error("a time is a number and s, m, h or d, such as 15m");
    return page.made("move", { ...mine, delay_ms: delay }, "Move");
  });
}

export function putJob(mine, name, page) {
  const asked = [
    { id: "value", label: "value, as JSON", area: true, value: "{}" },
    { id: "delay", label: "due in, such as 15m; empty: now", value: "" },
    { id: "priority", label: "priority, 0 to 9", value: "0" },
    { id: "key", label: "key; empty: none", value: "" },
  ];
  page.form(`Put a job into ${name}`, asked, "Put", (given) => {
    try {
      JSON.parse(given.value);
    } catch (error) {
      throw new Error(`the value is no JSON: ${error.message}`);
    }
    const delay = given.delay.trim() === "" ? 0 : duration(given.delay);
    if (delay === null) throw new Error("a time is a number and s, m, h or d, such as 15m");
    if (!/^\d$/.test(given.priority)) throw new Error("a priority is a digit");
    const told = { value: given.value, delay_ms: delay, priority: Number(given.priority), job_key: given.key };
    return page.made("put", { ...mine, ...told }, "Put");
  });
}

// --- search

const PARTS = [["", "anywhere"], ["value", "value"], ["key", "key"], ["header", "header"], ["error", "error"]];

export function drawSearch(told, at) {
  const go = (event) => {
    event.preventDefault();
    const text = document.getElementById("text").value;
    const chosen = document.getElementById("part").value;
    location.hash = `#/search?${query({ db: at.db, key: at.key, group: at.group, text, part: chosen })}`;
  };
  const options = PARTS.map(([name, shown]) => h("option", { value: name, selected: name === (at.part || "") }, shown));
  const isId = /^\d+-\d+$/.test(at.text || "");
  const place = { ref: at.key, group_ref: at.group };
  const columns = [
    ["job", (row) => link("job", jobAt(at, place, row.id), row.id)],
    ["which is", (row) => row.state],
    ["found in", (row) => row.part],
    ["there", (row) => h("span", { class: "wrap" }, line(row.excerpt, 160))],
  ];
  return [
    h("p", {}, link("queue", { db: at.db, key: at.key, group: at.group }, decodeURIComponent(at.key)), " / search"),
    h("h2", {}, "Search jobs"),
    h(
      "form",
      { class: "search", onsubmit: go },
      h("label", {}, "text or ID ", h("input", { id: "text", type: "search", value: at.text || "", required: true })),
      h("label", {}, "in ", h("select", { id: "part" }, options)),
      h("button", { type: "submit", class: "main" }, "Search"),
    ),
    isId ? h("p", {}, link("job", jobAt(at, place, at.text), `Job ${at.text}`)) : null,
    at.text ? note(looked(told, at)) : null,
    told.found.length ? table(columns, told.found) : null,
    told.next ? h("p", {}, link("search", { ...at, after: told.next }, "Look further")) : null,
  ];
}

function looked(told, at) {
  const begun = at.after ? "from where the last search ended" : "from the oldest on";
  const found = `Found ${number(told.found.length)}, ${begun}. `;
  return told.next ? [found, "Looked as far as ", when(put(told.next), told.now_ms), "; there is more."] : `${found}Nothing is left to look at.`;
}
