// keep.js - conversations in the browser's own database.  Nothing of them goes to the server but what a request holds.
import { Conversation } from "./conversation.js";

const STORE = "conversations";
const others = new BroadcastChannel("weft conversations"); // windows of this page tell each other what they changed
const memory = new Map(); // where the browser gives no database: until the page is left
let opened = null;

function open() {
  opened ??= new Promise((done, failed) => {
    const ask = indexedDB.open("weft", 1);
    ask.onupgradeneeded = () => ask.result.createObjectStore(STORE, { keyPath: "id" });
    ask.onsuccess = () => done(ask.result);
    ask.onerror = () => failed(ask.error);
  }).catch(() => null);
  return opened;
}

// Runs what(store) in a transaction of its own; its result once that is on the disk.
async function transact(mode, what) {
  const db = await open();
  return new Promise((done, failed) => {
    const t = db.transaction(STORE, mode);
    const ask = what(t.objectStore(STORE));
    t.commit?.(); // at once: a page that is left now would abort a transaction that is still open
    t.oncomplete = () => done(ask.result);
    t.onerror = t.onabort = () => failed(t.error ?? new Error("the browser could not keep it"));
  });
}

export async function is_kept() {
  return (await open()) !== null;
}

// All of them, the one that changed last first.
export async function all() {
  const list = (await is_kept()) ? await transact("readonly", (s) => s.getAll()) : [...memory.values()];
  return list.map(Conversation.from).sort((a, b) => b.changed - a.changed);
}

export async function load(id) {
  const plain = (await is_kept()) ? await transact("readonly", (s) => s.get(id)) : memory.get(id);
  return plain ? Conversation.from(plain) : null;
}

export async function save(conversation) {
  const plain = structuredClone(conversation.plain());
  if (await is_kept()) await transact("readwrite", (s) => s.put(plain));
  else memory.set(plain.id, plain);
  others.postMessage(plain.id);
}

export async function remove(id) {
  if (await is_kept()) await transact("readwrite", (s) => s.delete(id));
  else memory.delete(id);
  others.postMessage(id);
}

// told(id): another window changed or removed that conversation.
export function on_change(told) {
  others.onmessage = (e) => told(e.data);
}
