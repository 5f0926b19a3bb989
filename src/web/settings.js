// settings.js - what requests say besides the conversation: kept in this browser, with presets under names.
//
// The API key alone is kept only as long as the window: a browser's storage is not for secrets.
import { by_id, element } from "./element.js";

const FIELDS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "think", "system", "tools"];
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const HERE = "weft.settings", PRESETS = "weft.presets", KEY = "weft.key";

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

const values = () => Object.fromEntries(FIELDS.map((f) => [f, by_id(f).value]));
function fill(from, but = null) {
  for (const f of FIELDS) if (by_id(f) !== but) by_id(f).value = typeof from[f] === "string" ? from[f] : "";
}

// ---- what a request takes from here ----

export const api_key = () => by_id("key").value.trim();

// Members of a request's body, and the message before all others, or null; throws where the tools are not JSON.
export function request_fields() {
  const out = {};
  for (const name of NUMBERS) if (by_id(name).value !== "") out[name] = Number(by_id(name).value);
  if (by_id("think").value && !by_id("think-field").hidden)
    out.chat_template_kwargs = { enable_thinking: by_id("think").value === "true" };
  if (by_id("tools").value.trim()) {
    try {
      out.tools = JSON.parse(by_id("tools").value);
    } catch (e) {
      throw new Error("the tools under Settings are not JSON: " + e.message);
    }
  }
  return out;
}
export function system_message() {
  const text = by_id("system").value;
  return text.trim() ? { role: "system", content: text } : null;
}

// From /props: what counts where a field is empty.
export function learn(props) {
  for (const name of ["temperature", "top_p", "top_k", "min_p"]) by_id(name).placeholder = props.sampling[name] ?? "";
  by_id("think-field").hidden = props.thinking !== "by request";
}

export function on_key(told) {
  by_id("key").addEventListener("change", told);
}

// ---- presets ----

function show_presets(chosen = "") {
  const presets = read("localStorage", PRESETS, {});
  by_id("preset").replaceChildren(element("option", { value: "" }, "none"),
    ...Object.keys(presets).sort().map((name) => element("option", { value: name }, name)));
  by_id("preset").value = chosen;
  by_id("preset-drop").disabled = !by_id("preset").value;
}

by_id("preset").addEventListener("change", () => {
  const name = by_id("preset").value;
  by_id("preset-drop").disabled = !name;
  if (!name) return;
  fill(read("localStorage", PRESETS, {})[name] ?? {});
  by_id("preset-name").value = name;
  keep();
});
by_id("preset-keep").addEventListener("click", () => {
  const name = by_id("preset-name").value.trim();
  if (!name) {
    by_id("preset-name").focus();
    return;
  }
  write("localStorage", PRESETS, { ...read("localStorage", PRESETS, {}), [name]: values() });
  show_presets(name);
});
by_id("preset-drop").addEventListener("click", () => {
  const presets = read("localStorage", PRESETS, {});
  delete presets[by_id("preset").value];
  write("localStorage", PRESETS, presets);
  show_presets();
});

// ---- the dialog ----

function keep() {
  write("localStorage", HERE, values());
}
for (const f of FIELDS) by_id(f).addEventListener("change", keep);
by_id("key").addEventListener("change", () => write("sessionStorage", KEY, api_key()));
by_id("settings-reset").addEventListener("click", () => {
  fill({});
  show_presets();
  keep();
});
by_id("settings-open").addEventListener("click", () => by_id("settings").showModal());
by_id("settings-close").addEventListener("click", () => by_id("settings").close());
by_id("settings").addEventListener("click", (e) => { // outside of it
  if (e.target === by_id("settings")) by_id("settings").close();
});

// What another window keeps counts here too, so that this one does not write what was before.
addEventListener("storage", (e) => {
  if (e.key === HERE) fill(read("localStorage", HERE, {}), document.hasFocus() ? document.activeElement : null);
  if (e.key === PRESETS) show_presets(by_id("preset").value);
});

fill(read("localStorage", HERE, {}));
by_id("key").value = read("sessionStorage", KEY, "");
show_presets();
