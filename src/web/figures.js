// figures.js - the engine's counters as tiles, each with a line of the last two minutes, and its memory as bars.
import { by_id, bytes, element, svg } from "./element.js";

const SAMPLES = 120;

// Prometheus text to { "name{labels}": number }.
export function read_metrics(text) {
  const m = {};
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && line[0] !== "#") m[line.slice(0, at)] = Number(line.slice(at + 1));
  }
  return m;
}

const series = {};
function keep(name, value) {
  const s = series[name] ??= [];
  s.push(value);
  if (s.length > SAMPLES) s.shift();
  return s;
}

let before = null;
// The figures of the tiles, from two readings.
export function figures(m, now) {
  const seconds = before ? (now - before.now) / 1000 : 0;
  const grown = (name) => (before ? m[name] - before.m[name] : 0);
  const rate = (name) => (seconds > 0 ? grown(name) / seconds : 0);
  const steps = grown("weft_steps_total");
  const out = [
    ["Running", m.weft_requests_running, 0],
    ["Waiting", m.weft_requests_waiting, 0],
    ["Output tokens/s", rate("weft_output_tokens_total"), 0],
    ["Prompt tokens/s", rate("weft_prompt_tokens_total"), 0],
    ["Cached tokens/s", rate("weft_cached_tokens_total"), 0],
    ["Steps/s", steps / (seconds || 1), 0],
    ["Decode step, ms", m.weft_decode_step_seconds * 1000, 2],
  ];
  before = { m, now };
  return out;
}

function sparkline(values) {
  const top = Math.max(...values, 1e-9);
  const line = svg("svg", { viewBox: `0 0 ${SAMPLES} 20`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const from = SAMPLES - values.length;
  line.append(svg("polyline", { points: values.map((v, i) => `${from + i},${19 - 18 * v / top}`).join(" ") }));
  return line;
}

export function draw_tiles(list) {
  by_id("tiles").replaceChildren(...list.map(([name, value, digits]) => element("div", { class: "tile" },
    element("div", { class: "name" }, name), element("div", { class: "value" }, (value || 0).toFixed(digits)),
    sparkline(keep(name, value || 0)))));
}

function bar(name, used, all, show = String) {
  const meter = element("meter", { min: "0", max: String(all || 1), value: String(used), "aria-label": name });
  return element("div", { class: "bar" }, element("span", {}, name), meter,
    element("span", { class: "value" }, `${show(used)} of ${show(all)}`));
}

export function draw_memory(m) {
  by_id("bars").replaceChildren(
    bar("KV cache pages", m.weft_kv_pages_used ?? 0, m.weft_kv_pages ?? 0),
    bar("Recurrent states", m.weft_states_used ?? 0, m.weft_states ?? 0),
    bar("Prefix cache", m.weft_prefix_bytes ?? 0, m.weft_prefix_bytes_max ?? 0, bytes),
    bar("Preempted requests", m.weft_parked_bytes ?? 0, m.weft_parked_bytes_max ?? 0, bytes));
}
