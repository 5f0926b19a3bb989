// state.js - which models are served, which of them is chosen, and whether all is well: in the header and in the window's title.
import { by_id, element } from "./element.js";
import { ask } from "./server.js";
import { learn, on_key, read, write } from "./settings.js";

const PERIOD_MS = 5000, CHOICE = "weft.model";
let props = null;
let several = false; // models are served
let chosen = null;   // the name of one of them

// Members of a request's body, and a path, that say which model is meant.
export const model_fields = () => (several ? { model: chosen } : {});
export const of_model = (path) => (several ? `${path}?model=${encodeURIComponent(chosen)}` : path);

// Asks the server, for another model may have come.
export async function sees_pictures() {
  await look();
  return props?.modalities?.vision === true;
}
export async function hears_sounds() {
  await look();
  return props?.modalities?.audio === true;
}

function words_of({ model, context, state }) {
  const words = `context ${context.toLocaleString()} tokens`;
  return several ? words + (state ? `, ${state}` : "") : `${model}, ${words}`;
}

// word: of /health, or why there is none.
function show(word, good) {
  const dot = by_id("health");
  const name = props?.model ?? "weft";
  dot.className = good ? "good" : "bad";
  dot.title = word;
  dot.setAttribute("aria-label", "server: " + word);
  by_id("model").textContent = good ? (props ? words_of(props) : "") : `${name}: ${word}`;
  document.title = good ? `${name} · weft` : `⚠ ${name} (${word}) · weft`;
}

// { status, model }: /health answers 503 where all is not well, with its word all the same.
async function health() {
  try {
    return await (await fetch("/health")).json();
  } catch {
    return { status: "does not answer" };
  }
}

// Members of /props for a model that is not loaded, as /v1/models tells them.
function props_of(m) {
  const can = (what) => m.capabilities.includes(what);
  return { model: m.id, context: m.max_model_len, modalities: { vision: can("vision"), audio: can("audio") }, sampling: {},
    thinking: can("thinking") ? "by request" : "no", state: m.status.value };
}

async function find_props() {
  const models = (await (await ask("/v1/models")).json()).data.filter((m) => m.root === m.id && !m.parent);
  const here = (name) => models.find((m) => m.id === name);
  several = models.length > 1;
  chosen = (here(chosen) ?? here(read("localStorage", CHOICE, null)) ?? models[0]).id;
  by_id("models").hidden = !several;
  by_id("models").replaceChildren(...models.map((m) => element("option", { value: m.id }, m.id)));
  by_id("models").value = chosen;
  props = several && here(chosen).status.value !== "loaded" ? props_of(here(chosen)) : await (await ask(of_model("/props"))).json();
  learn(props);
}
by_id("models").addEventListener("change", () => {
  chosen = by_id("models").value;
  write("localStorage", CHOICE, chosen);
  props = null;
  look();
});

let asked_at = 0;
export async function look() {
  asked_at = Date.now();
  const { status: word, model } = await health();
  // A server that was started again in the meantime may have another model.
  if (word === "ok" && (!props || several || model !== props.model)) {
    try {
      await find_props();
    } catch (e) {
      show(e.message, false);
      return;
    }
  }
  if (word === "does not answer") props = null; // another model may come
  show(word, word === "ok");
}

on_key(() => {
  props = null;
  look();
});
setInterval(() => {
  if (document.visibilityState === "visible") look();
}, PERIOD_MS);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && Date.now() - asked_at > PERIOD_MS) look();
});
