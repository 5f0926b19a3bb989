// live.js - the engine as it works: each second, while it is looked at, its figures, its requests and its tree.
import { by_id } from "./element.js";
import { draw_memory, draw_tiles, figures, read_metrics } from "./figures.js";
import { draw_requests } from "./requests.js";
import { ask } from "./server.js";
import { of_model } from "./state.js";
import { draw_tree } from "./tree.js";

const PERIOD_MS = 1000;
let timer = null, busy = false;

async function tick() {
  if (busy) return;
  busy = true;
  try {
    const [metrics, cache, requests] = await Promise.all([of_model("/metrics"), of_model("/v1/cache"), "/v1/requests"].map((p) => ask(p)));
    const m = read_metrics(await metrics.text());
    by_id("live-body").hidden = false;
    draw_tiles(figures(m, performance.now()));
    draw_memory(m);
    draw_requests((await requests.json()).data);
    draw_tree(await cache.json());
    by_id("live-state").hidden = true;
  } catch (e) {
    by_id("live-state").hidden = false;
    by_id("live-state").textContent = (by_id("live-body").hidden ? "No metrics: " : "These metrics are old: ") + e.message;
  }
  busy = false;
}

function watch() {
  const looked_at = !by_id("live").hidden && document.visibilityState === "visible";
  if (looked_at && !timer) {
    tick();
    timer = setInterval(tick, PERIOD_MS);
  } else if (!looked_at && timer) {
    clearInterval(timer);
    timer = null;
  }
}
document.addEventListener("view", watch);
document.addEventListener("visibilitychange", watch);
document.addEventListener("ordered", tick);
