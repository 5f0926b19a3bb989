// tools.js - MCP servers that a person has named, their place under Settings, and what they offer to the model.
//
// Their list is kept in this browser, for all conversations; a token only as long as the window, as the API key.  None is asked
// before the person adds it, and none is offered to the model before it is switched on.
import { button, by_id, element, icon_button, name_of, shown_of } from "./element.js";
import { read, show_also, write } from "./settings.js";
import { worker } from "./workers.js";

const KEPT = "weft.mcp", TOKENS = "weft.mcp-tokens";
const LIST_MS = 30000, CALL_MS = 120000;
const SERVERS_MOST = 20, TOOLS_MOST = 128, RESULT_MOST = 200000; // the last in characters

// { url, on, off }: off has the names of its tools that are not offered.
const is_server = (s) => typeof s?.url === "string" && !problem_of(s.url) && typeof s.on === "boolean" && Array.isArray(s.off);
let kept = kept_now();
const listed = new Map(); // URL: a promise of its tools
const known = new Map();  // URL: what its row says, as show() takes it
const rows = new Map();   // URL: its elements

function kept_now() {
  const list = read("localStorage", KEPT, []);
  return Array.isArray(list) ? list.filter(is_server).slice(0, SERVERS_MOST) : [];
}

// What is wrong with the URL of a server; "": nothing.
function problem_of(text) {
  if (!URL.canParse(text)) return "This is not a URL. Example: http://localhost:3000/mcp";
  const url = new URL(text);
  if (!/^https?:$/.test(url.protocol)) return "The URL must begin with http:// or https://.";
  return url.username || url.password ? "A URL here has no user name or password; a server may ask for a token." : "";
}
export const host_of = (url) => new URL(url).host;
const token_of = (url) => read("sessionStorage", TOKENS, {})[url] ?? "";

// ---- asking ----

let asker = null, last = 0;
const waiting = new Map(); // id: { done, failed }

function begin() {
  asker = worker("mcp");
  asker.onmessage = ({ data: { id, result, error } }) => {
    const w = waiting.get(id);
    waiting.delete(id);
    if (result) w?.done(result);
    else w?.failed(new Error(error));
  };
}

// A result of the server; throws a sentence that begins with its name.
function ask(url, method, params, ms, signal) {
  const id = ++last;
  if (!asker) begin();
  const stop = () => asker.postMessage({ id, stop: true });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    stop();
  }, ms);
  signal?.addEventListener("abort", stop);
  return new Promise((done, failed) => {
    waiting.set(id, { done, failed });
    asker.postMessage({ id, url, token: token_of(url), method, params });
  }).catch((e) => {
    throw new Error(`${host_of(url)} ${late ? `did not answer within ${ms / 1000} s: try again, or see what it is doing` : e.message}`);
  }).finally(() => clearTimeout(timer));
}

function tools_of({ tools }) {
  return tools.filter((t) => t && typeof t.name === "string" && t.name).slice(0, TOOLS_MOST).map((t) => ({ name: t.name,
    description: typeof t.description === "string" ? t.description : "",
    schema: t.inputSchema && typeof t.inputSchema === "object" && !Array.isArray(t.inputSchema) ? t.inputSchema : { type: "object", properties: {} } }));
}

// The tools of a server.  A list that came is not asked for again.
function list(url) {
  if (!listed.has(url)) {
    const asking = ask(url, "tools/list", {}, LIST_MS).then(tools_of);
    listed.set(url, asking);
    show(url, { busy: true });
    asking.then((tools) => show(url, { tools }), (e) => {
      if (listed.get(url) === asking) listed.delete(url);
      show(url, { problem: e.message });
    });
  }
  return listed.get(url);
}

// ---- what an answer takes from here ----

export const is_on = (url) => kept.some((s) => s.url === url && s.on);

// Names of functions are short and of few letters; two servers may have one name.
function name_for(name, taken) {
  const plain = name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60);
  for (let i = 1; ; i++) {
    const tried = i > 1 ? `${plain}_${i}` : plain;
    if (!taken.has(tried)) return tried;
  }
}

// { tools, of }: tools of a request, after those that it has; and by the name that the model gets to know, { url, name } at the
// server.  Throws where a server that is on does not tell its tools.
export async function offered(own) {
  const out = { tools: [], of: Object.create(null) }, taken = new Set(own.map((t) => t?.function?.name));
  for (const { url, on, off } of kept) {
    if (!on) continue;
    const tools = await list(url).catch((e) => { throw new Error(`${e.message}. Or switch it off under Settings.`); });
    for (const t of tools.filter((tool) => !off.includes(tool.name))) {
      const name = name_for(t.name, taken);
      taken.add(name);
      out.of[name] = { url, name: t.name };
      out.tools.push({ type: "function", function: { name, description: t.description, parameters: t.schema } });
    }
  }
  return out;
}

// What a server's tool answered, as text: the rest has no place in a message of a tool.
function text_of({ content, structuredContent }) {
  const parts = (Array.isArray(content) ? content : []).map((c) => [c?.text, c?.resource?.text, c?.uri].find((v) => typeof v === "string") ??
    `[${c?.type} ${c?.mimeType ?? ""}, left out]`);
  const text = parts.join("\n") || (structuredContent ? JSON.stringify(structuredContent) : "");
  return text.length > RESULT_MOST ? `${text.slice(0, RESULT_MOST)}\n[${text.length - RESULT_MOST} more characters are left out]` : text;
}

// { text, failed }: what the tool answered, and whether it says that it failed; throws where there is no answer.
export async function call({ url, name }, given, signal) {
  const result = await ask(url, "tools/call", { name, arguments: given }, CALL_MS, signal);
  return { text: text_of(result), failed: result.isError === true };
}

// ---- their place under Settings ----

function keep(now) {
  kept = now;
  write("localStorage", KEPT, kept);
  tell();
}
function change(url, more) {
  keep(kept.map((s) => (s.url === url ? { ...s, ...more } : s)));
}

// In the line above a conversation.
function tell() {
  const on = kept.filter((s) => s.on).map((s) => host_of(s.url));
  show_also(on.length ? `tools of ${on.join(", ")}` : "");
}

function tool_box(url, tool) {
  const box = element("input", { type: "checkbox", checked: !kept.find((s) => s.url === url)?.off.includes(tool.name), onchange: () => {
    const others = kept.find((s) => s.url === url).off.filter((n) => n !== tool.name);
    change(url, { off: box.checked ? others : [...others, tool.name] });
  } });
  return element("li", {}, element("label", {}, box, " ", element("code", {}, name_of(tool.name))),
    element("div", { class: "hint" }, shown_of(tool.description)));
}

// What is known of a server now: { busy }, { tools } or { problem }.
function show(url, state) {
  const row = rows.get(url), { busy, tools, problem } = state;
  known.set(url, state);
  if (!row) return;
  row.state.className = problem ? "problem" : "hint";
  row.state.textContent = problem ?? (busy ? "asking for its tools" : tools.length ? "" : "It has no tools.");
  row.again.hidden = !problem;
  if (problem?.includes("token")) row.token.hidden = false;
  row.list.replaceChildren(...(tools?.length ? [element("details", {}, element("summary", {}, tools.length === 1 ? "1 tool" : `${tools.length} tools`),
    element("ul", {}, ...tools.map((t) => tool_box(url, t))))] : []));
}

function again(url) {
  listed.delete(url);
  return list(url).catch(() => null); // its row says why
}

function remove(gone, at) {
  keep(kept.filter((s) => s.url !== gone.url));
  draw();
  const back = button("Undo", () => {
    keep([...kept.slice(0, at), gone, ...kept.slice(at)]);
    draw();
    by_id("server-url").focus();
  });
  by_id("server-undo").replaceChildren(`${host_of(gone.url)} is removed. `, back);
  back.focus();
}

function row_of({ url, on }) {
  const name = name_of(url), row = { state: element("p", { class: "hint", role: "status" }), list: element("div") };
  row.on = element("input", { type: "checkbox", onchange: () => {
    change(url, { on: row.on.checked });
    if (row.on.checked) again(url);
  } });
  row.on.checked = on;
  const token = element("input", { type: "password", autocomplete: "off", value: token_of(url), onchange: () => {
    write("sessionStorage", TOKENS, { ...read("sessionStorage", TOKENS, {}), [url]: token.value.trim() });
    again(url);
  } });
  row.token = element("label", { hidden: !token_of(url) }, "Token ", token);
  row.again = button("Try again", () => again(url), { hidden: true });
  row.box = element("li", {}, element("div", { class: "row" }, element("label", { class: "server" }, row.on, " ", element("span", {}, name)), row.again,
    icon_button("trash", `Remove ${name}`, () => remove(kept.find((s) => s.url === url), kept.findIndex((s) => s.url === url)), {}, "Remove")),
  row.token, row.state, row.list);
  rows.set(url, row);
  return row.box;
}

function draw() {
  by_id("server-undo").replaceChildren();
  rows.clear();
  by_id("servers").replaceChildren(...kept.map(row_of));
  for (const { url } of kept) if (known.has(url)) show(url, known.get(url));
}

function add() {
  const field = by_id("server-url"), url = field.value.trim();
  const wrong = problem_of(url) || (kept.some((s) => s.url === url) ? "This server is there already." : "") ||
    (kept.length === SERVERS_MOST ? `This page takes ${SERVERS_MOST} servers: remove one.` : "");
  by_id("server-problem").textContent = wrong;
  if (wrong) return field.focus();
  field.value = "";
  keep([...kept, { url, on: false, off: [] }]);
  draw();
  list(url).catch(() => null);
  rows.get(url).on.focus();
}
by_id("server-add").addEventListener("click", add);
by_id("server-url").addEventListener("keydown", (e) => {
  if (e.key !== "Enter") return;
  e.preventDefault();
  add();
});
// Servers that are on show their tools when the person comes to see.
for (const id of ["settings-open", "in-force"])
  by_id(id).addEventListener("click", () => { for (const s of kept) if (s.on) list(s.url).catch(() => null); });
addEventListener("storage", (e) => {
  if (e.key !== KEPT) return;
  kept = kept_now();
  tell();
  draw();
});
draw();
tell();
