// state.js - which model is served, and whether all is well with it: in the header and in the window's title.
import { by_id } from "./element.js";
import { ask } from "./server.js";
import { learn, on_key } from "./settings.js";

const PERIOD_MS = 5000;
let props = null;

// Asks the server where it has not told yet.
export async function sees_pictures() {
  if (!props) await look();
  return props?.modalities?.vision === true;
}
export async function hears_sounds() {
  if (!props) await look();
  return props?.modalities?.audio === true;
}

// health: a word of /health, or why there is none.
function show(health, good) {
  const dot = by_id("health");
  const name = props?.model ?? "weft";
  dot.className = good ? "good" : "bad";
  dot.title = health;
  dot.setAttribute("aria-label", "server: " + health);
  by_id("model").textContent = good ? (props ? `${name}, context ${props.context.toLocaleString()} tokens` : "") : `${name}: ${health}`;
  document.title = good ? `${name} · weft` : `⚠ ${name} (${health}) · weft`;
}

// /health answers 503 where all is not well, with its word all the same.
async function health_word() {
  try {
    return (await (await fetch("/health")).json()).status;
  } catch {
    return "does not answer";
  }
}

let asked_at = 0;
export async function look() {
  asked_at = Date.now();
  const word = await health_word();
  if (word === "ok" && !props) {
    try {
      props = await (await ask("/props")).json();
      learn(props);
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
