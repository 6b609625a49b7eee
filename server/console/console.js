// The console: asks the server every two seconds, and draws what it says. It signs in, asks before each change, and
// keeps the focus where it was when the page is drawn again.
import { h, keepHistory, number, query } from "./elements.js";
import { places, sample } from "./views.js";

const PERIOD_MS = 2000;
const SAMPLE_MS = 20000; // between two notes of the last hour, whatever page is open
const byId = (id) => document.getElementById(id);

let session = { user: null, csrf: null, may_read: true, read_only: "", may_write: false, signs_in: true, tells: false };
let timer = null;
let asked = 0; // number of the last look; an answer to an earlier one is dropped
let sampledAt = 0;

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

// --- what the views use

const page = {
  get session() {
    return session;
  },
  call, change, failed, form, look, made, state,

  button(text, kind, act, key) {
    return h("button", { type: "button", class: kind, disabled: !session.may_write, onclick: act, "data-key": key }, text);
  },

  whyReadOnly() {
    if (session.may_write) return "";
    if (session.read_only) return `${session.read_only[0].toUpperCase()}${session.read_only.slice(1)}.`;
    return "Sign in to redrive, delete, put, move or pause.";
  },
};

// --- changes

async function change(name, body, question, verb) {
  if (!(await agreed(question, verb))) return;
  try {
    await made(name, body, verb);
  } catch (error) {
    failed(error);
  }
}

// Make a change, in as many pieces as the server needs.
async function made(name, body, verb) {
  let done = 0;
  let told = { more: true, last: "" };
  while (told.more) {
    told = await call(name, { ...body, last: told.last });
    done += told.done;
    state(`${verb}: ${number(done)}`);
  }
  await look();
  state(done ? `${verb}: ${number(done)} done` : `${verb}: nothing was changed, for it has changed meanwhile`, !done);
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

// A form in a dialog. `act` gets the values by ID; its error stands in the form.
let act = null;

function form(title, asks, verb, whenGiven) {
  byId("form-title").textContent = title;
  byId("form-why").textContent = "";
  byId("form-yes").textContent = verb;
  byId("form-fields").replaceChildren(...asks.map((each) => {
    const field = each.area ? h("textarea", { id: `form-${each.id}`, rows: 6 }) : h("input", { id: `form-${each.id}` });
    field.value = each.value;
    return h("label", {}, each.label, " ", field);
  }));
  act = async () => {
    await whenGiven(Object.fromEntries(asks.map((each) => [each.id, byId(`form-${each.id}`).value])));
  };
  byId("form").showModal();
}

async function submit(event) {
  event.preventDefault();
  try {
    await act();
    byId("form").close();
  } catch (error) {
    byId("form-why").textContent = error.message;
  }
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

// `tidelog console` opens the page with a token, which is used up here.
async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  history.replaceState(null, "", location.pathname);
  if (session.user === null) session = await call("login", { token }); // else this browser has used it already
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
  sign.hidden = !session.signs_in;
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
  if (error.login && session.signs_in) openLogin(error.message);
}

function place() {
  const [name, words] = location.hash.replace(/^#\/?/, "").split("?");
  const at = Object.fromEntries(new URLSearchParams(words || ""));
  at.db = at.db || byId("db").value || "0";
  return { name: Object.hasOwn(places, name) ? name : "queues", at };
}

// Whether somebody reads or marks something that a new drawing would take away.
function occupied() {
  const selection = document.getSelection();
  return Boolean(selection && selection.type === "Range") || document.querySelector("dialog[open]") !== null;
}

const keyOf = (element) => element.dataset.key || `${element.tagName} ${element.textContent}`;
const inView = () => [...byId("view").querySelectorAll("a, button, summary, input, select")];

// Draw, and give the focus back to the element that had it.
function drawn(parts) {
  const had = document.activeElement;
  const key = byId("view").contains(had) ? keyOf(had) : null;
  const nth = key === null ? 0 : inView().filter((each) => keyOf(each) === key).indexOf(had);
  byId("view").replaceChildren(...parts.flat(Infinity).filter((each) => each !== null && each !== undefined));
  if (key !== null) inView().filter((each) => keyOf(each) === key)[nth]?.focus({ preventScroll: true });
}

async function look() {
  const mine = ++asked;
  const { name, at } = place();
  const view = places[name];
  for (const each of document.querySelectorAll("nav a")) {
    const current = each.getAttribute("href") === `#/${name}` || each.getAttribute("href") === `#/${name}s`;
    if (current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  try {
    const told = await call(view.look(at));
    if (mine !== asked) return;
    if (name === "queues" || name === "queue") noted(told, at.db);
    drawn(view.draw(told, at, page));
    Object.assign(document.body.dataset, { drawn: name, look: mine });
    state("");
    if (performance.now() - sampledAt > SAMPLE_MS) noted(await call(`queues?${query({ db: at.db })}`), at.db);
  } catch (error) {
    if (mine === asked) failed(error);
  }
}

function noted(told, db) {
  sample(told, db);
  if (told.queues) {
    sampledAt = performance.now();
    keepHistory();
  }
}

async function turn() {
  clearTimeout(timer);
  if (!document.hidden && !occupied() && !places[place().name].still) await look();
  timer = setTimeout(turn, PERIOD_MS);
}

// "/" leads from a queue or one of its jobs to the search.
function pressed(event) {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const { at } = place();
  if (at.key === undefined || at.group === undefined || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  location.hash = `#/search?${query({ db: at.db, key: at.key, group: at.group })}`;
}

async function moved() {
  await enter().catch(failed);
  await look();
  byId("text")?.focus();
}

async function begin() {
  for (let db = 1; db < 16; db++) byId("db").append(h("option", {}, String(db)));
  byId("db").addEventListener("change", () => {
    const { name } = place();
    const kept = ["schedules", "workers", "streams"].find((each) => each === name || each === `${name}s`);
    location.hash = `#/${kept || "queues"}`;
    look();
  });
  byId("sign").addEventListener("click", () => (session.user === null ? openLogin("") : signOut()));
  byId("login-form").addEventListener("submit", (event) => {
    event.preventDefault();
    signIn();
  });
  byId("login-cancel").addEventListener("click", () => byId("login").close());
  byId("form-form").addEventListener("submit", submit);
  byId("form-no").addEventListener("click", () => byId("form").close());
  byId("ask-yes").addEventListener("click", () => answer(true));
  byId("ask-no").addEventListener("click", () => answer(false));
  byId("ask").addEventListener("cancel", () => answer(false)); // Escape
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", moved);
  document.addEventListener("visibilitychange", turn);
  try {
    session = await call("session");
    await enter();
    showSession();
  } catch (error) {
    showSession();
    failed(error);
    if (!session.may_read && !session.signs_in) return;
  }
  turn();
}

begin();
