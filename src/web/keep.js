// keep.js - conversations in the browser's own database.  Nothing of them goes to the server but what a request holds.
//
// A conversation is several records, so that two windows that change it at once lose nothing of each other: each turn is a
// record of its own, which never changes (ID/turn/TURN); which of its branches are shown (ID/head); its name (ID/name) and its settings
// (ID/settings).  A window writes what it added and removes what it removed.
import { Conversation } from "./conversation.js";

const STORE = "conversations";
const others = new BroadcastChannel("weft conversations"); // windows of this page tell each other what they changed
const memory = new Map(); // where the browser gives no database: until the page is left
const written = new WeakMap(); // conversation: { turns, name, settings } of it that are in the database
let opened = null;

// All records of one conversation, or of all, stand in this range of keys.
const range_of = (id) => (id ? IDBKeyRange.bound(id + "/", id + "0", false, true) : null);
const turn_key = (id, turn) => `${id}/turn/${turn}`;

function ready(ask) {
  return new Promise((done, failed) => {
    ask.onsuccess = () => done(ask.result);
    ask.onerror = () => failed(ask.error);
  });
}

// A conversation was one record, with its turns in it, before.
async function split_old(db) {
  const t = db.transaction(STORE, "readwrite"), s = t.objectStore(STORE);
  for (const id of (await ready(s.getAllKeys())).filter((key) => !key.includes("/"))) {
    const { name, turns, ...head } = await ready(s.get(id));
    s.put({ ...head, id: id + "/head" });
    s.put({ id: id + "/name", name });
    (turns ?? []).forEach((turn, at) => s.put({ id: turn_key(id, turn.id), turn: { at, ...turn } }));
    s.delete(id);
  }
}

async function open_database() {
  const ask = indexedDB.open("weft", 1);
  ask.onupgradeneeded = () => ask.result.createObjectStore(STORE, { keyPath: "id" });
  const db = await ready(ask);
  await split_old(db);
  return db;
}

const open = () => (opened ??= open_database().catch(() => null));

export async function is_kept() {
  return (await open()) !== null;
}

// Runs what(store) in a transaction of its own; its result once that is on the disk.
async function transact(mode, what) {
  const db = await open();
  return new Promise((done, failed) => {
    const t = db.transaction(STORE, mode);
    const ask = what(t.objectStore(STORE));
    t.commit?.(); // at once: a page that is left now would abort a transaction that is still open
    t.oncomplete = () => done(ask.result);
    t.onerror = t.onabort = () => failed(t.error ?? new Error("the browser could not store it"));
  });
}

async function read(id) {
  if (await is_kept()) return transact("readonly", (s) => s.getAll(range_of(id)));
  return [...memory.values()].filter((r) => r.id.startsWith(id ? id + "/" : ""));
}

// The conversations whose records these are.
function conversations(records) {
  const found = new Map();
  for (const { id: key, turn, name, settings, shown, changed } of records) {
    const id = key.slice(0, key.indexOf("/"));
    if (!found.has(id)) found.set(id, { id, name: "", settings: null, turns: [], shown: {}, changed: 0 });
    const plain = found.get(id);
    if (turn) plain.turns.push(turn);
    else if (key.endsWith("/name")) plain.name = name;
    else if (key.endsWith("/settings")) plain.settings = settings;
    else Object.assign(plain, { shown, changed });
  }
  return [...found.values()].filter((plain) => plain.turns.length).map((plain) => {
    const c = Conversation.from(plain);
    written.set(c, { turns: new Set(c.turns.map((t) => t.id)), name: c.name, settings: c.settings });
    return c;
  });
}

// All of them, the one that changed last first.
export async function all() {
  return conversations(await read()).sort((a, b) => b.changed - a.changed);
}

export async function load(id) {
  return id ? conversations(await read(id))[0] ?? null : null;
}

// The turns that are new here, with those before them: another window may have removed these meanwhile.
function to_write(c, before) {
  const by_id = new Map(c.turns.map((t) => [t.id, t])), out = new Map();
  for (const t of c.turns)
    if (!before.turns.has(t.id)) for (let at = t; at && !out.has(at.id); at = by_id.get(at.parent)) out.set(at.id, at);
  return [...out.values()];
}

export async function save(c) {
  const there = await is_kept();
  const before = written.get(c) ?? { turns: new Set(), name: "", settings: null };
  const now = { turns: new Set(c.turns.map((t) => t.id)), name: c.name, settings: c.settings };
  const puts = [{ id: c.id + "/head", changed: c.changed, shown: c.shown },
    ...to_write(c, before).map((turn) => ({ id: turn_key(c.id, turn.id), turn }))];
  const gone = [...before.turns].filter((id) => !now.turns.has(id)).map((id) => turn_key(c.id, id));
  if (c.name !== before.name) puts.push({ id: c.id + "/name", name: c.name });
  if (c.settings !== before.settings) puts.push({ id: c.id + "/settings", settings: c.settings });
  if (there) {
    await transact("readwrite", (s) => {
      for (const key of gone) s.delete(key);
      return puts.map((record) => s.put(record)).at(-1);
    });
  } else {
    for (const key of gone) memory.delete(key);
    for (const record of puts) memory.set(record.id, structuredClone(record));
  }
  written.set(c, now);
  others.postMessage(c.id);
}

export async function remove(c) {
  written.delete(c);
  if (await is_kept()) await transact("readwrite", (s) => s.delete(range_of(c.id)));
  else for (const key of [...memory.keys()].filter((k) => k.startsWith(c.id + "/"))) memory.delete(key);
  others.postMessage(c.id);
}

// told(id): another window changed or removed that conversation.
export function on_change(told) {
  others.onmessage = (e) => told(e.data);
}
