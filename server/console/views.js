// The views of a database: queues, schedules, workers, streams, and the store. Each draws what the server told.
import {
  age, beginning, failure, fields, h, line, link, list, note, noted, number, part, payload, progress, put, query, rate,
  rows, size, soft, sparkline, table, when,
} from "./elements.js";
import { drawJob, drawSearch, jobAt, putJob } from "./job.js";

// look: what is asked; draw: what is shown; still: it is not asked again every two seconds
export const places = {
  queues: { look: (at) => `queues?${query({ db: at.db })}`, draw: drawQueues },
  queue: {
    look: (at) => `queue?${query({ db: at.db, key: at.key, group: at.group, before: at.before || "" })}`,
    draw: drawQueue,
  },
  job: { look: (at) => `job?${query({ db: at.db, key: at.key, group: at.group, id: at.id })}`, draw: drawJob },
  search: {
    look: (at) =>
      `search?${query({ db: at.db, key: at.key, group: at.group, text: at.text || "", part: at.part || "", after: at.after || "" })}`,
    draw: drawSearch,
    still: true,
  },
  schedules: { look: (at) => `schedules?${query({ db: at.db })}`, draw: drawSchedules },
  workers: { look: (at) => `workers?${query({ db: at.db })}`, draw: drawWorkers },
  streams: { look: (at) => `streams?${query({ db: at.db })}`, draw: drawStreams },
  stream: { look: (at) => `stream?${query({ db: at.db, key: at.key })}`, draw: drawStream },
  store: { look: () => "overview", draw: drawStore },
};

const nameOf = (db, row, what) => `${db} ${row.ref} ${row.group_ref} ${what}`;
const LAST_HOUR = [["depth", "depth"], ["put_per_second", "put/s"], ["done_per_second", "done/s"]];

// Note the figures of the last hour.
export function sample(told, db) {
  for (const row of told.queues || [told]) {
    for (const [name] of LAST_HOUR) noted(nameOf(db, row, name), row[name], told.now_ms);
  }
}

const queueLink = (at, row, text) =>
  link("queue", { db: at.db, key: row.ref, group: row.group_ref }, text || row.name);

function drawQueues(told, at) {
  const held = (row) => Object.values(row.in_flight).reduce((sum, count) => sum + count, 0);
  const columns = [
    ["queue", (row) => queueLink(at, row)],
    ["group", (row) => row.group],
    ["depth", (row) => number(row.depth), "n"],
    ["last hour", (row) => sparkline(nameOf(at.db, row, "depth"), `depth of ${row.name}`, told.now_ms)],
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

const some = (told) => (told.complete ? null : note("The database has more keys than are shown here."));

function drawQueue(told, at, page) {
  const now = told.now_ms;
  const mine = { db: Number(at.db), key: at.key, group: at.group };
  const workers = Object.entries(told.in_flight);
  const toJob = (id) => h("p", {}, link("job", jobAt(at, told, id), `Job ${id}`));
  const dead = told.dead_jobs.map((job) =>
    part(
      `dead ${job.id}`,
      [when(job.died_ms, now), ` ${line(job.reason)} `, soft(beginning(job))],
      h(
        "p",
        { class: "buttons" },
        page.button("Redrive", "main", () =>
          page.change("redrive", { ...mine, ids: [job.id] }, "Put this job back at the end of the queue?", "Redrive")),
        page.button("Delete", "danger", () =>
          page.change("purge-dead", { ...mine, ids: [job.id] }, "Delete this job for good?", "Delete")),
      ),
      list([
        ["reason", job.reason],
        ["dead job", link("job", jobAt(at, told, job.id), job.id)],
        ["original", h("span", {}, `${job.original_id}, put `, when(put(job.original_id), now))],
        ["deliveries", `${job.deliveries}, to ${job.workers.join(", ") || "?"} of ${job.group}`],
      ]),
      payload(job),
      job.failures.flatMap((one) => failure(one, now)),
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
      ["cancelled", number(told.cancelled)],
      ["rates", `put ${rate(told.put_per_second) || "?"}, done ${rate(told.done_per_second) || "?"}`],
      ["finished", `${number(told.kept)} kept`],
    ]),
    h("p", { class: "hour" }, LAST_HOUR.map(([name, shown]) =>
      h("span", {}, soft(shown), " ", sparkline(nameOf(at.db, told, name), shown, now)))),
    page.whyReadOnly() ? note(page.whyReadOnly()) : null,
    h(
      "p",
      { class: "buttons" },
      page.button("Put a job", "main", () => putJob(mine, told.name, page)),
      page.button("Redrive all dead", "main", () =>
        page.change("redrive", { ...mine, all: true }, `Put all dead jobs of ${told.name} back?`, "Redrive")),
      page.button("Delete all dead", "danger", () =>
        page.change("purge-dead", { ...mine, all: true }, `Delete all dead jobs of ${told.name} for good?`, "Delete")),
      page.button("Purge waiting", "danger", () =>
        page.change("purge", mine, `Delete every waiting and paused job of ${told.name} for good?`, "Purge")),
      link("search", { db: at.db, key: at.key, group: at.group }, "Search jobs (/)"),
    ),
    h("h3", {}, "Dead jobs, newest first"),
    dead.length ? h("div", { id: "dead" }, dead) : note("none"),
    told.dead_more
      ? h("p", {}, link("queue", { ...at, before: told.dead_jobs.at(-1).id }, "older"))
      : null,
    h("h3", {}, "In hand, or paused until the next try"),
    ...rows(told.held, (job) =>
      part(
        `held ${job.id}`,
        [
          `${job.id} ${job.consumer || "paused"}, delivery ${job.deliveries}, `,
          when(now - job.idle_ms, now), " ", soft(beginning(job)),
        ],
        toJob(job.id),
        payload(job),
      )),
    h("h3", {}, "Next jobs"),
    ...rows(told.jobs, (job) =>
      part(`job ${job.id}`, [`${job.id} `, soft(beginning(job))], toJob(job.id), h("p", {}, "put ", when(put(job.id), now)), payload(job))),
    h("h3", {}, "Scheduled jobs"),
    ...rows(told.later, (job) =>
      part(`later ${job.id}`, [when(job.due_ms, now), " ", soft(beginning(job))], toJob(job.id), payload(job))),
    h("h3", {}, "Failures, newest first"),
    ...rows(told.latest_failures, (one) =>
      part(
        `failure ${one.job} ${one.at_ms} ${one.delivery}`,
        [when(one.at_ms, now), ` ${one.job}, delivery ${one.delivery} `, soft(line(one.error))],
        toJob(one.job),
        failure(one, now),
      )),
  ];
}

// --- schedules and workers

function drawSchedules(told, at, page) {
  const act = (row) => {
    const mine = { db: Number(at.db), key: row.ref };
    return row.paused
      ? page.button("Resume", "main", () =>
        page.change("resume", mine, `Let ${row.name} put jobs into ${row.queue} again, from its next tick on?`, "Resume"), `resume ${row.name}`)
      : page.button("Pause", "danger", () =>
        page.change("pause", mine, `Pause ${row.name}? It puts no jobs into ${row.queue} until it is resumed.`, "Pause"), `pause ${row.name}`);
  };
  const columns = [
    ["schedule", (row) => row.name],
    ["queue", (row) => queueLink(at, row.place)],
    ["rule", (row) => (row.cron === null ? `every ${age(row.every_ms / 1000)}` : `${row.cron} ${row.tz}`)],
    ["next ticks", (row) =>
      row.paused ? "paused" : row.ticks_ms.length ? row.ticks_ms.map((ms) => h("div", {}, when(ms, told.now_ms))) : "none"],
    ["so far", (row) => number(row.ticks), "n"],
    ["missed ticks", (row) => row.catch_up],
    ["value", (row) => h("span", { class: "wrap" }, line(row.value.text))],
    ["", act],
  ];
  return [
    h("h2", {}, "Schedules"),
    page.whyReadOnly() ? note(page.whyReadOnly()) : null,
    told.schedules.length ? table(columns, told.schedules) : h("p", {}, "There are no schedules in this database."),
  ];
}

// When the page saw a delivery first. The lease is renewed again and again, so the server knows only the last time.
const firstSeen = new Map();
const SEEN_MAX = 5000;

function since(row, job, now) {
  const key = `${row.ref} ${row.group_ref} ${job.id} ${job.deliveries}`;
  const known = firstSeen.get(key);
  const at = Math.min(known === undefined ? Infinity : known, now - job.idle_ms);
  if (firstSeen.size > SEEN_MAX) firstSeen.clear();
  firstSeen.set(key, at);
  return at;
}

function drawWorkers(told, at) {
  const now = told.now_ms;
  const alive = (row) => row.idle_ms < told.alive_ms;
  const more = (row) => (row.pending > row.held.length ? h("div", {}, `and ${number(row.pending - row.held.length)} more`) : null);
  const columns = [
    ["worker", (row) => row.worker],
    ["queue", (row) => queueLink(at, row)],
    ["group", (row) => row.group],
    ["alive", (row) => [
      h("span", { class: alive(row) ? "" : "bad" }, alive(row) ? "yes" : "not seen"),
      row.hanging ? h("div", { class: "bad" }, `${number(row.hanging)} handlers hang`) : null,
    ]],
    ["last sign", (row) => when(now - row.idle_ms, now)],
    ["holds", (row) => number(row.pending), "n"],
    ["jobs, held at least since", (row) => [
      row.held.map((job) =>
        h("div", {}, link("job", jobAt(at, row, job.id), job.id), " ", when(since(row, job, now), now),
          job.progress ? soft(` ${progress(job.progress)}`) : null)),
      more(row),
    ]],
  ];
  return [
    h("h2", {}, "Workers"),
    told.workers.length ? table(columns, told.workers) : h("p", {}, "No worker has taken a job in this database."),
    note(`A worker stands here once it got a job, and is alive if it asked for jobs, got some or renewed a lease within ${age(told.alive_ms / 1000)}.`),
    some(told),
  ];
}

// --- streams and the store

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
  const now = told.now_ms;
  const members = [
    ["consumer", (row) => row.name],
    ["pending", (row) => number(row.pending), "n"],
    ["seen", (row) => when(now - row.idle, now)],
    ["active", (row) => (row.inactive < 0 ? "never" : when(now - row.inactive, now))],
  ];
  const oldest = [
    ["entry", (row) => row.id],
    ["consumer", (row) => row.consumer || "nobody"],
    ["since", (row) => when(now - row.idle_ms, now)],
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
        [`${entry.id} `, soft(line(entry.fields.map(([name, one]) => `${name} ${one.text}`).join("  ")))],
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
  const folded = Number(ours.checkpoint_unix_ms);
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
      ["checkpoint", h("span", {}, `LSN ${number(Number(ours.checkpoint_lsn || 0))}, made `, folded ? when(folded, told.now_ms) : "never")],
      ["log behind it", `${size(ours.bytes_since_checkpoint || 0)}, ${number(Number(ours.changes_since_checkpoint || 0))} records`],
      ["refuses writes", ours.refusal || ours.failure || "no"],
    ]),
    h("h3", {}, "All fields"),
    ...sections,
  ];
}
