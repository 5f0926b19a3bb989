// conversation.js - a conversation as data: a tree of turns, of which one way from the root is shown.
//
// A turn is { id, parent, at, role, content } and what its role has besides: files, pictures and sounds of a user, reasoning_content,
// thought (its time), tool_calls, of (which MCP server has the tool of a name: { url, name }; not read from files, which are others'),
// model, stats and cut of an answer, tool_call_id and name of a tool's result.  It never changes: what changes one adds another.  Turns of one parent are branches: editing a message or making an answer again adds one, and none is lost.  `at`
// orders turns, and is later than the parent's.  No element of the page is known here.

import { of_others } from "./others.js";

const ROLES = ["user", "assistant", "tool"];
const KIND = "weft conversations";

export const new_id = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");

// A fence that no run of backticks in text closes.
function fence_for(text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  return "`".repeat(longest + 1);
}

const file_text = (f) => `${f.name}:\n${fence_for(f.text)}\n${f.text}\n${fence_for(f.text)}\n\n`;

// A sound is a data: URL whose type names the format.
function sound_part(sound) {
  const [head, data] = sound.url.split(",");
  const format = /wav|flac|ogg|mp3/.exec(head)?.[0] ?? "mp3"; // audio/mpeg
  return { type: "input_audio", input_audio: { data, format } };
}

function message_of(turn) {
  const out = { role: turn.role, content: turn.content };
  for (const name of ["reasoning_content", "tool_calls", "tool_call_id"]) if (turn[name]) out[name] = turn[name];
  out.content = (turn.files ?? []).map(file_text).join("") + turn.content;
  if (turn.pictures?.length || turn.sounds?.length)
    out.content = [...(turn.pictures ?? []).map((p) => ({ type: "image_url", image_url: { url: p.url } })),
      ...(turn.sounds ?? []).map(sound_part), ...(out.content ? [{ type: "text", text: out.content }] : [])];
  return out;
}

export class Conversation {
  constructor() {
    this.id = new_id();
    this.name = "";       // given by the person; "": it is called after its first message
    this.changed = Date.now();
    this.settings = null; // of its requests (settings.js); null: nothing was asked yet
    this.turns = [];
    this.shown = Object.create(null); // id of a turn, or "" for the root: which of the branches after it is shown
  }

  get title() {
    const words = (this.name || this.turns.find((t) => t.role === "user")?.content || "").trim().replace(/\s+/g, " ");
    return words.length > 60 ? words.slice(0, 59) + "…" : words || "New conversation";
  }

  branches(parent) {
    return this.turns.filter((t) => t.parent === parent);
  }

  // From the first turn to the last one shown.
  path() {
    const out = [];
    for (let at = ""; ;) {
      const kids = this.branches(at);
      if (!kids.length) return out;
      const turn = kids.find((t) => t.id === this.shown[at]) ?? kids[kids.length - 1];
      out.push(turn);
      at = turn.id;
    }
  }

  get last() {
    return this.path().at(-1) ?? null;
  }

  show(turn) {
    this.shown[turn.parent] = turn.id;
  }

  // A turn after parent (an id, or "" for the root), shown from now on.
  add(parent, turn) {
    const added = { ...turn, id: new_id(), parent, at: Math.max(Date.now(), (this.turns.at(-1)?.at ?? 0) + 1) };
    this.turns.push(added);
    this.show(added);
    this.changed = Date.now();
    return added;
  }

  // A message of the user.  It replaces one before it that was never answered, which stays as a branch.
  say(turn) {
    const last = this.last;
    return this.add(last?.role === "user" ? last.parent : last?.id ?? "", { role: "user", ...turn });
  }

  // With all that follows it; returns what bring_back takes.
  remove(turn) {
    const gone = new Set([turn.id]), shown = { ...this.shown };
    for (const t of this.turns) if (gone.has(t.parent)) gone.add(t.id); // a turn comes after its parent
    const turns = this.turns.filter((t) => gone.has(t.id));
    this.turns = this.turns.filter((t) => !gone.has(t.id));
    for (const id of gone) delete this.shown[id];
    if (gone.has(this.shown[turn.parent])) delete this.shown[turn.parent];
    this.changed = Date.now();
    return { turns, shown };
  }

  bring_back({ turns, shown }) {
    const here = new Set(this.turns.map((t) => t.id));
    this.take([...this.turns, ...turns.filter((t) => !here.has(t.id))]);
    Object.assign(this.shown, shown);
    this.changed = Date.now();
  }

  // In order, each after its parent.  A turn whose parent another window took away begins a branch of its own.
  take(turns) {
    const here = new Set(turns.map((t) => t.id));
    this.turns = turns.map((t) => (t.parent === "" || here.has(t.parent) ? t : { ...t, parent: "" })).sort((a, b) => a.at - b.at);
  }

  // As the API takes it, up to and with the turn of this id.
  messages(upto) {
    const path = this.path();
    return path.slice(0, path.findIndex((t) => t.id === upto) + 1).map(message_of);
  }

  holds(words) {
    return [this.title, ...this.turns.map((t) => t.content)].some((text) => text.toLowerCase().includes(words));
  }

  plain() {
    const { id, name, changed, settings, turns, shown } = this;
    return { id, name, changed, settings, turns, shown };
  }

  static from(plain) {
    const c = new Conversation(), { shown } = c;
    Object.assign(c, plain, { shown: Object.assign(shown, plain.shown) });
    c.take(plain.turns);
    return c;
  }
}

// ---- files of conversations ----

export function exported(list) {
  return JSON.stringify({ kind: KIND, version: 1, conversations: list.map((c) => c.plain()) }, null, 1);
}

const is_text = (v) => typeof v === "string";
const optional = (v, good) => v === undefined || good(v);
const list_of = (good) => (v) => Array.isArray(v) && v.every(good);
const is_call = (c) => is_text(c?.id) && is_text(c.function?.name) && is_text(c.function.arguments);
const is_picture = (p) => is_text(p?.name) && is_text(p.url) && /^data:image\/(?:png|jpeg|webp|gif);base64,[A-Za-z0-9+/]*={0,2}$/.test(p.url) &&
  (p.url.length - p.url.indexOf(",") - 1) % 4 === 0;
const is_sound = (s) => is_text(s?.name) && is_text(s.url) && /^data:audio\/[a-z0-9-]+;base64,[A-Za-z0-9+/]*={0,2}$/.test(s.url) &&
  (s.url.length - s.url.indexOf(",") - 1) % 4 === 0;

// A turn of a file, with the members that are known and no others; throws.  After those that were read earlier: ids, and the
// time of the last.
function turn_from(t, earlier, last) {
  const good = is_text(t?.id) && t.id !== "" && ROLES.includes(t.role) && is_text(t.content) && (t.parent === "" || earlier.has(t.parent)) &&
    !earlier.has(t.id) && optional(t.files, list_of((f) => is_text(f?.name) && is_text(f.text))) &&
    optional(t.pictures, list_of(is_picture)) && optional(t.sounds, list_of(is_sound)) && optional(t.tool_calls, list_of(is_call)) &&
    ["reasoning_content", "thought", "model", "stats", "cut", "tool_call_id", "name"].every((m) => optional(t[m], is_text));
  if (!good) throw new Error("one of its turns is malformed");
  const out = { id: t.id, parent: t.parent, at: Math.max(last + 1, Number.isSafeInteger(t.at) ? Math.min(t.at, Date.now()) : 0), role: t.role, content: t.content };
  for (const m of ["files", "pictures", "sounds", "tool_calls", "reasoning_content", "thought", "model", "stats", "cut", "tool_call_id", "name"])
    if (t[m] !== undefined) out[m] = t[m];
  return out;
}

// Conversations of a file, each under an id of its own, so that what is here already stays; throws what is wrong.
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON");
  }
  const own = file?.kind === KIND && file.version === 1 && Array.isArray(file.conversations);
  const conversations = own ? file.conversations : of_others(file);
  if (!conversations) throw new Error("the file has no conversations of this page, of llama-server or of Open WebUI");
  return conversations.map((plain) => {
    const c = new Conversation(), earlier = new Set();
    if (!Array.isArray(plain?.turns)) throw new Error("one of its conversations has no turns");
    for (const t of plain.turns) {
      c.turns.push(turn_from(t, earlier, c.turns.at(-1)?.at ?? -1));
      earlier.add(t.id);
    }
    c.name = is_text(plain.name) ? plain.name : "";
    c.settings = plain.settings ?? null; // checked where they are read
    c.changed = Number.isFinite(plain.changed) ? plain.changed : Date.now();
    for (const [at, id] of Object.entries(plain.shown ?? {})) if (is_text(id)) c.shown[at] = id;
    return c;
  });
}
