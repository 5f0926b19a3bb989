// others.js - files of conversations that other pages write, as files of this one: llama-server's and Open WebUI's.
//
// Both keep trees, as here.  What has no place here is left behind: ratings, sources, times of computing.

const text = (v) => (typeof v === "string" ? v : "");
const list = (v) => (Array.isArray(v) ? v : []);
const is_image = (url) => /^data:image\/(?:png|jpeg|webp|gif);base64,/.test(text(url));

// entries: { id, parent, at, role, content, ... } in any order.  Those of other roles than a turn's are taken out, and what follows
// one follows what is before it.  current: the id of the last one shown.
function conversation(name, changed, entries, current) {
  const all = new Map(entries.map((e) => [e.id, e])), children = new Map(), shown = Object.create(null), turns = [];
  const kept = (e) => e.id && ["user", "assistant", "tool"].includes(e.role);
  function before(e) { // "" where there is none, or where parents go round
    const seen = new Set();
    for (let at = all.get(e.parent); at && !seen.has(at); at = all.get(at.parent)) {
      if (kept(at)) return at.id;
      seen.add(at);
    }
    return "";
  }
  for (const e of [...all.values()].filter(kept).sort((a, b) => a.at - b.at)) {
    const parent = before(e);
    children.set(parent, [...(children.get(parent) ?? []), { ...e, parent }]);
  }
  for (let open = children.get("") ?? []; open.length;) {
    const e = open.shift();
    turns.push(e);
    open = [...open, ...(children.get(e.id) ?? [])];
  }
  const places = new Map(turns.map((t) => [t.id, t]));
  for (let t = places.get(current) ?? places.get(before({ parent: current })); t; t = places.get(t.parent)) shown[t.parent] = t.id;
  const system = entries.find((e) => e.role === "system" && e.content)?.content;
  return { name, changed, settings: system ? { system } : null, turns, shown };
}

// ---- llama-server: { conv, messages }, or a list of these ----

function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return null;
  }
}

function llama_message(m) {
  const out = { id: text(m?.id), parent: text(m?.parent), at: m?.timestamp, role: m?.type === "root" ? "root" : m?.role, content: text(m?.content) };
  const extra = list(m?.extra), thought = text(m?.reasoningContent) || text(m?.thinking), calls = list(parsed(m?.toolCalls));
  const pictures = extra.filter((x) => x?.type === "imageFile" && is_image(x.base64Url)).map((x) => ({ name: text(x.name), url: x.base64Url }));
  const files = extra.filter((x) => ["textFile", "pdfFile", "context"].includes(x?.type)).map((x) => ({ name: text(x.name), text: text(x.content) }));
  const sounds = extra.filter((x) => x?.type === "audioFile").map((x) => ({ name: text(x.name), url: `data:${x.mimeType};base64,${x.base64Data}` }));
  if (pictures.length) out.pictures = pictures;
  if (files.length) out.files = files;
  if (sounds.length) out.sounds = sounds;
  if (calls.length) out.tool_calls = calls;
  if (thought) out.reasoning_content = thought;
  for (const [to, from] of [["model", m?.model], ["tool_call_id", m?.toolCallId]]) if (text(from)) out[to] = from;
  return out;
}

function llama_conversation({ conv, messages }) {
  return conversation(text(conv.name), conv.lastModified, messages.map(llama_message), text(conv.currNode));
}

// ---- Open WebUI: a list of { title, updated_at, chat: { history: { messages, currentId } } } ----

const THOUGHT = /<details type="reasoning"[^>]*>\s*(?:<summary>[^<]*<\/summary>)?([\s\S]*?)<\/details>\s*/;

function open_message(m) {
  const thought = m?.role === "assistant" ? THOUGHT.exec(text(m.content)) : null;
  const out = { id: text(m?.id), parent: text(m?.parentId), at: m?.timestamp * 1000, role: m?.role, content: text(m?.content).replace(thought?.[0] ?? "", "") };
  const given = list(m?.files);
  const pictures = given.filter((f) => f?.type === "image" && is_image(f.url)).map((f) => ({ name: text(f.name) || "image", url: f.url }));
  const files = given.filter((f) => text(f?.file?.data?.content)).map((f) => ({ name: text(f.name), text: f.file.data.content }));
  if (pictures.length) out.pictures = pictures;
  if (files.length) out.files = files;
  if (thought) out.reasoning_content = thought[1].replace(/^[ \t]*(?:&gt;|>) ?/gm, "").trim();
  if (text(m?.model)) out.model = m.model;
  return out;
}

function open_conversation({ title, updated_at, chat }) {
  const { messages, currentId } = chat.history;
  return conversation(text(title) || text(chat.title), updated_at * 1000, Object.values(messages).map(open_message), text(currentId));
}

// The conversations of the file that have turns, as this page exports them; null: there is none.
export function of_others(file) {
  const all = Array.isArray(file) ? file : [file];
  const read = all.every((c) => c?.conv && Array.isArray(c.messages)) ? llama_conversation :
    all.every((c) => c?.chat?.history?.messages && typeof c.chat.history.messages === "object") ? open_conversation : null;
  const found = read ? all.map(read).filter((c) => c.turns.length) : [];
  return found.length ? found : null;
}
