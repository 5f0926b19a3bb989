// settings.js - what requests say besides the messages, with presets under names.  Each conversation has its own, which it takes
// over from those for new conversations when it begins.  All are kept in this browser.
//
// The API key alone is kept only as long as the window: a browser's storage is not for secrets.
import { button, by_id, element, name_of } from "./element.js";

const FIELDS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "think", "system", "tools"];
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const HERE = "weft.settings", PRESETS = "weft.presets", KEY = "weft.key", THEME = "weft.theme";

// Storage may be forbidden, full, or hold what another version wrote.
export function read(storage, name, otherwise) {
  try {
    return JSON.parse(globalThis[storage].getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
export function write(storage, name, value) {
  try {
    globalThis[storage].setItem(name, JSON.stringify(value));
  } catch { /* it lasts until the page is left */ }
}

// Settings are an object of texts by field; a field that is empty has no member.
const set_fields = (from) => Object.fromEntries(FIELDS.filter((f) => typeof from[f] === "string" && from[f] !== "").map((f) => [f, from[f]]));
let for_new = set_fields(read("localStorage", HERE, {})); // what new conversations begin with
let own = null;     // the settings of the conversation that is shown, or null: it has not begun
let changed = null; // takes them when they change
let also = "";      // what is set elsewhere, in words: the MCP servers that are on

// A field that holds what cannot be sent stays as it was.
const typed = (f) => (by_id(f).checkValidity() ? by_id(f).value : (own ?? for_new)[f] ?? "");
function fill(from, but = null) {
  for (const f of FIELDS) if (by_id(f) !== but) by_id(f).value = from[f] ?? "";
  judge_tools();
}

// The dialog is about these settings from now on, and told gets them when they change; null: about those for new conversations.
export function show_settings(settings, told) {
  own = settings;
  changed = told;
  by_id("settings-scope").textContent = own ? "They apply to this conversation." : "They apply to new conversations.";
  by_id("settings-for-new").hidden = !own;
  fill(own ?? for_new, by_id("settings").open ? document.activeElement : null);
  const words = [in_force(own ?? for_new), also].filter((w) => w).join(" · ");
  by_id("in-force").hidden = !words;
  by_id("in-force").textContent = words;
}
// These words are shown with those of the settings from now on.
export function show_also(words) {
  also = words;
  show_settings(own, changed);
}
export const settings_for_new = () => ({ ...for_new });
// What a file or the database has: only what is known.
export const settings_from = (from) => (from && typeof from === "object" ? set_fields(from) : null);

// ---- what a request takes from here ----

export const api_key = () => by_id("key").value.trim();

function tools_of(text) {
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (e) {
    throw new Error("the tools under Settings are not JSON: " + e.message);
  }
  if (!Array.isArray(tools)) throw new Error("the tools under Settings are not a JSON array");
  return tools;
}

// Members of a request's body, and the message before all others, or null; throws where the tools are not a JSON array.
export function request_fields(settings) {
  const out = {};
  for (const name of NUMBERS) if (settings[name]) out[name] = Number(settings[name]);
  if (settings.think && !by_id("think-field").hidden)
    out.chat_template_kwargs = { enable_thinking: settings.think === "true" };
  if (settings.tools?.trim()) out.tools = tools_of(settings.tools);
  return out;
}
export function system_message({ system }) {
  return system?.trim() ? { role: "system", content: system } : null;
}

// In words, for the line above a conversation; "": nothing is set.
function in_force(settings) {
  const out = NUMBERS.filter((f) => settings[f]).map((f) => `${f.replace("_", " ")} ${settings[f]}`);
  if (settings.think && !by_id("think-field").hidden) out.push(settings.think === "true" ? "thinking on" : "thinking off");
  if (settings.tools?.trim()) out.push("tools");
  if (settings.system?.trim()) out.push("system message: " + settings.system.trim().replace(/\s+/g, " "));
  return name_of(out.join(" · "));
}

// From /props: what counts where a field is empty.
export function learn(props) {
  for (const name of ["temperature", "top_p", "top_k", "min_p"]) by_id(name).placeholder = props.sampling[name] ?? "";
  by_id("think-field").hidden = props.thinking !== "by request";
  if (props.build_info) by_id("version").textContent = `Server: ${props.build_info}.`; // it is not told of a model that is not loaded
  show_settings(own, changed);
}

export function on_key(told) {
  by_id("key").addEventListener("change", told);
}

// ---- presets ----

function show_presets(chosen = "") {
  const presets = read("localStorage", PRESETS, {});
  by_id("preset-undo").replaceChildren();
  by_id("preset").replaceChildren(element("option", { value: "" }, "none"),
    ...Object.keys(presets).sort().map((name) => element("option", { value: name }, name)));
  by_id("preset").value = chosen;
  by_id("preset-drop").disabled = !by_id("preset").value;
}

function keep_preset(name, settings) {
  write("localStorage", PRESETS, { ...read("localStorage", PRESETS, {}), [name]: settings });
  show_presets(name);
}

by_id("preset").addEventListener("change", () => {
  const name = by_id("preset").value;
  by_id("preset-drop").disabled = !name;
  if (!name) return;
  fill(set_fields(read("localStorage", PRESETS, {})[name] ?? {}));
  by_id("preset-name").value = name;
  keep();
});
by_id("preset-keep").addEventListener("click", () => {
  const name = by_id("preset-name").value.trim();
  if (!name) {
    by_id("preset-name").focus();
    return;
  }
  keep_preset(name, own ?? for_new);
});
by_id("preset-drop").addEventListener("click", () => {
  const presets = read("localStorage", PRESETS, {}), name = by_id("preset").value, gone = presets[name];
  delete presets[name];
  write("localStorage", PRESETS, presets);
  show_presets();
  const back = button("Undo", () => {
    keep_preset(name, gone);
    by_id("preset").focus();
  });
  by_id("preset-undo").replaceChildren(`Preset "${name_of(name)}" is deleted. `, back);
  back.focus(); // the button that was pressed is disabled now
});

// ---- the dialog ----

function keep_for_new(settings) {
  for_new = settings;
  write("localStorage", HERE, for_new);
}
function keep() {
  const now = set_fields(Object.fromEntries(FIELDS.map((f) => [f, typed(f)])));
  if (own) changed(now);
  else keep_for_new(now);
  show_settings(own && now, changed);
}
function judge_tools() {
  let wrong = "";
  try {
    if (by_id("tools").value.trim()) tools_of(by_id("tools").value);
  } catch (e) {
    wrong = e.message;
  }
  by_id("tools").setCustomValidity(wrong);
}
// Shows what is wrong with a field, and stays; or closes.
function done() {
  const wrong = FIELDS.map(by_id).find((field) => !field.checkValidity());
  if (wrong) wrong.reportValidity();
  else by_id("settings").close();
}
by_id("tools").addEventListener("input", judge_tools);
for (const f of FIELDS) by_id(f).addEventListener("change", () => by_id(f).checkValidity() && keep());
function show_theme() {
  const theme = read("localStorage", THEME, "");
  by_id("theme").value = theme;
  document.documentElement.dataset.theme = theme;
}
by_id("theme").addEventListener("change", () => {
  write("localStorage", THEME, by_id("theme").value);
  show_theme();
});
by_id("key").addEventListener("change", () => write("sessionStorage", KEY, api_key()));
by_id("settings-reset").addEventListener("click", () => {
  fill({});
  show_presets();
  keep();
});
for (const id of ["settings-open", "in-force"]) by_id(id).addEventListener("click", () => by_id("settings").showModal());
by_id("settings-close").addEventListener("click", done);
by_id("settings").addEventListener("click", (e) => { // outside of it
  if (e.target === by_id("settings")) done();
});
by_id("settings").addEventListener("close", () => fill(own ?? for_new));
by_id("settings-for-new").addEventListener("click", () => keep_for_new({ ...own }));

// What another window keeps counts here too, so that this one does not write what was before.
addEventListener("storage", (e) => {
  if (e.key === HERE) {
    for_new = set_fields(read("localStorage", HERE, {}));
    if (!own) show_settings(null, null);
  }
  if (e.key === THEME) show_theme();
  if (e.key === PRESETS) show_presets(by_id("preset").value);
});

by_id("key").value = read("sessionStorage", KEY, "");
show_presets();
show_settings(null, null);
show_theme();
