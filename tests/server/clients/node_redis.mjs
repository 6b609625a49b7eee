// node-redis as a program uses it: PORT PROTOCOL. Prints what it got as one JSON object, keys sorted by the reader.
import { createClient, ClientClosedError } from "redis";

const [port, RESP] = process.argv.slice(2).map(Number);
const JOBS = 40;
const got = {};

async function connect() {
  const client = createClient({ socket: { host: "127.0.0.1", port, reconnectStrategy: false }, RESP });
  client.on("error", (error) => { if (!(error instanceof ClientClosedError)) throw error; });
  return await client.connect();
}

async function refusal(promise) {
  try {
    await promise;
    return "nothing was refused";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

// The prototypes of maps are the client's own; what is in them counts.
const plain = (value) => JSON.parse(JSON.stringify(value ?? null));

const client = await connect();
got.ping = await client.ping();
got.role = (await client.info("replication")).match(/^role:(\w+)/m)[1];

// Entries and ranges
got.add = [await client.xAdd("s", "1-1", { a: "1" }), await client.xAdd("s", "2-*", { a: "ä", b: "2" })];
got.refused = await refusal(client.xAdd("s", "1-1", { a: "1" }));
got.noSuch = await refusal(client.sendCommand(["NOSUCH", "x"]));
got.range = plain(await client.xRange("s", "-", "+"));
got.revRange = plain(await client.xRevRange("s", "+", "-", { COUNT: 1 }));
got.len = await client.xLen("s");
got.read = plain(await client.xRead([{ key: "s", id: "1-1" }, { key: "none", id: "0" }]));
got.readNothing = plain(await client.xRead({ key: "s", id: "$" }));
got.trim = await client.xTrim("s", "MAXLEN", 1);

// A consumer group
await client.xGroupCreate("jobs", "workers", "0", { MKSTREAM: true });
got.busy = await refusal(client.xGroupCreate("jobs", "workers", "0"));
await Promise.all(Array.from({ length: JOBS }, (_, n) => client.xAdd("jobs", `${n + 1}-1`, { n: String(n) }))); // one pipeline
const first = await client.xReadGroup("workers", "ann", { key: "jobs", id: ">" }, { COUNT: 5 });
got.first = plain(first);
got.acked = await client.xAck("jobs", "workers", first[0].messages.slice(0, 3).map(({ id }) => id));
got.history = plain(await client.xReadGroup("workers", "ann", { key: "jobs", id: "0" }));
got.pending = plain(await client.xPending("jobs", "workers"));
got.pendingRange = (await client.xPendingRange("jobs", "workers", "-", "+", 10)).map(
  ({ id, consumer, deliveriesCounter }) => [id, consumer, deliveriesCounter]);
got.claimed = plain(await client.xClaim("jobs", "workers", "ben", 0, "4-1"));
got.autoClaimed = plain(await client.xAutoClaim("jobs", "workers", "ben", 0, "0-0"));
got.groups = plain(await client.xInfoGroups("jobs"));
got.consumers = (await client.xInfoConsumers("jobs", "workers")).map(({ name, pending }) => [name, pending]);

// A worker that waits, and a producer
const worker = await connect();
const seen = [];
const work = (async () => {
  for (;;) {
    const reply = await worker.xReadGroup("workers", "ben", { key: "jobs", id: ">" }, { COUNT: 10, BLOCK: 5000 });
    for (const { id, message } of reply[0].messages) {
      if (message.n === "end") return await worker.xAck("jobs", "workers", id);
      seen.push(Number(message.n));
      await worker.xAck("jobs", "workers", id);
    }
  }
})();
for (let n = JOBS; n < 2 * JOBS; n++) await client.xAdd("jobs", `${n + 1}-1`, { n: String(n) });
await client.xAdd("jobs", `${2 * JOBS + 1}-1`, { n: "end" });
await work;
got.finished = await client.xAck("jobs", "workers", ["4-1", "5-1"]);
got.seen = seen;
got.timeout = plain(await worker.xRead({ key: "jobs", id: "$" }, { BLOCK: 20 }));
got.left = (await client.xPending("jobs", "workers")).pending;

// Transactions
got.exec = plain(await client.multi().xAdd("t", "1-1", { a: "1" }).xLen("t").xRange("t", "-", "+").exec());
got.execFailed = await refusal(client.multi().xAdd("t", "1-1", { a: "1" }).xLen("t").exec());
const watching = await connect();
await watching.watch("t");
await client.xAdd("t", "2-1", { a: "2" });
got.watched = await refusal(watching.multi().xAdd("t", "3-1", { a: "3" }).exec());

// Pub/sub
const subscriber = await connect();
const heard = new Promise((resolve) => subscriber.subscribe("news", (message, channel) => resolve([channel, message])));
while ((await client.pubSubNumSub("news")).news !== 1) await new Promise((resolve) => setTimeout(resolve, 5));
got.published = await client.publish("news", "first");
got.heard = await heard;

for (const each of [client, worker, watching, subscriber]) each.destroy();
console.log(JSON.stringify(got));
