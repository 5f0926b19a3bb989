// live.js - the engine as it works: figures each second, memory, and the tree of kept prefixes.
import { element, headers, problem_of, settings } from "/server.js";

const SAMPLES = 120, PERIOD_MS = 1000;
const SVG = "http://www.w3.org/2000/svg";

// ---- reading ----

// Prometheus text to { "name{labels}": number }.
function read_metrics(text) {
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
function figures(m, now) {
  const seconds = before ? (now - before.now) / 1000 : 0;
  const grown = (name) => (before ? m[name] - before.m[name] : 0);
  const rate = (name) => (seconds > 0 ? grown(name) / seconds : 0);
  const steps = grown("weft_steps_total");
  const out = [
    ["Running", m.weft_requests_running, 0],
    ["Waiting", m.weft_requests_waiting, 0],
    ["Answer tokens a second", rate("weft_output_tokens_total"), 0],
    ["Prompt tokens a second", rate("weft_prompt_tokens_total"), 0],
    ["Of them kept from before", rate("weft_cached_tokens_total"), 0],
    ["Steps a second", steps / (seconds || 1), 0],
    ["A decode step, ms", m.weft_decode_step_seconds * 1000, 2],
  ];
  before = { m, now };
  return out;
}

// ---- drawing ----

function svg(name, attributes) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

function sparkline(values) {
  const top = Math.max(...values, 1e-9);
  const line = svg("svg", { viewBox: `0 0 ${SAMPLES} 20`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const from = SAMPLES - values.length;
  line.append(svg("polyline", { points: values.map((v, i) => `${from + i},${19 - 18 * v / top}`).join(" ") }));
  return line;
}

function draw_tiles(list) {
  settings("tiles").replaceChildren(...list.map(([name, value, digits]) => element("div", { class: "tile" },
    element("div", { class: "name" }, name), element("div", { class: "value" }, (value || 0).toFixed(digits)),
    sparkline(keep(name, value || 0)))));
}

function bytes(n) {
  const unit = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1024 && i < unit.length - 1; i++) n /= 1024;
  return n.toFixed(n < 10 && i ? 1 : 0) + " " + unit[i];
}

function bar(name, used, all, show = String) {
  const meter = element("meter", { min: "0", max: String(all || 1), value: String(used), "aria-label": name });
  return element("div", { class: "bar" }, element("span", {}, name), meter,
    element("span", { class: "value" }, `${show(used)} of ${show(all)}`));
}

function draw_memory(m) {
  settings("bars").replaceChildren(
    bar("Pages of keys and values", m.weft_kv_pages_used ?? 0, m.weft_kv_pages ?? 0),
    bar("Recurrent states", m.weft_states_used ?? 0, m.weft_states ?? 0),
    bar("Kept prefixes", m.weft_prefix_bytes ?? 0, m.weft_prefix_bytes_max ?? 0, bytes),
    bar("Preempted requests", m.weft_parked_bytes ?? 0, m.weft_parked_bytes_max ?? 0, bytes));
}

// ---- the tree ----

const ROW = 22, LEFT = 8, WIDEST = 900;
let hits = new Map(), chosen = null;

// Rows by leaf, columns by position: a long run is drawn shorter than it is, by its square root.
function layout(nodes) {
  const by_id = new Map(nodes.map((n) => [n.id, { ...n, children: [] }]));
  const roots = [];
  for (const n of by_id.values()) (by_id.get(n.parent)?.children ?? roots).push(n);
  const far = Math.max(1, ...nodes.map((n) => n.end));
  const x = (pos) => LEFT + Math.sqrt(pos / far) * WIDEST;
  let row = 0;
  const place = (n) => {
    n.x0 = x(n.begin) + (by_id.get(n.parent)?.state ? 5 : 0);     // beside the dot
    n.x1 = Math.max(x(n.end), n.x0 + 6);
    if (!n.children.length) n.row = row++;
    else {
      n.children.forEach(place);
      n.row = n.children[0].row;
    }
  };
  roots.forEach(place);
  return { all: [...by_id.values()], rows: row };
}

function draw_tree(cache) {
  const { all, rows } = layout(cache.nodes);
  const picture = svg("svg", { width: WIDEST + 160, height: Math.max(rows, 1) * ROW + 12, role: "group",
    "aria-label": "Tree of kept prefixes" });
  for (const n of all) {
    const y = n.row * ROW + 10;
    for (const c of n.children)
      if (c.row !== n.row)
        picture.append(svg("path", { class: "edge", d: `M${n.x1} ${y + 4} V${c.row * ROW + 14} H${c.x0}` }));
  }
  for (const n of all) {
    const y = n.row * ROW + 10, was = hits.get(n.id);
    const hit = was !== undefined && n.hits > was;
    const g = svg("g", { class: "node" + (hit ? " hit" : ""), tabindex: "0", role: "button",
      "aria-current": String(chosen === n.id), "aria-label": `tokens ${n.begin} to ${n.end}, ${n.hits} hits` });
    g.append(svg("rect", { class: "run" + (n.on_disk ? " on-disk" : ""), x: n.x0, y, width: n.x1 - n.x0, height: 8, rx: 3 }));
    if (n.state) g.append(svg("circle", { class: "state" + (n.pinned ? " pinned" : ""), cx: n.x1, cy: y + 4, r: 4.5 }));
    const choose = () => {
      chosen = n.id;
      show_node(n);
    };
    g.addEventListener("click", choose);
    g.addEventListener("keydown", (e) => {
      if (e.key === "Enter" || e.key === " ") {
        e.preventDefault();
        choose();
      }
    });
    if (!n.children.length) {
      const t = svg("text", { x: n.x1 + 10, y: y + 8 });
      t.textContent = `${n.end} · ${n.place}${n.hits ? " · " + n.hits + " hits" : ""}`;
      g.append(t);
    }
    picture.append(g);
  }
  const focused = [...document.querySelectorAll("#tree .node")].indexOf(document.activeElement);
  settings("tree").replaceChildren(picture);
  if (focused >= 0) picture.querySelectorAll(".node")[focused]?.focus();
  hits = new Map(cache.nodes.map((n) => [n.id, n.hits]));
  settings("tree-note").textContent = cache.nodes.length
    ? `${cache.states} states, ${bytes(cache.bytes)} of ${bytes(cache.bytes_max)}; a dot is a state to go on from, a run flashes when one is used`
    : "Nothing is kept yet.";
}

async function order(verb, node) {
  const reply = await fetch("/v1/cache/" + verb, { method: "POST", body: JSON.stringify({ node }),
    headers: { "content-type": "application/json", ...headers() } });
  if (!reply.ok) settings("node").append(element("p", { class: "problem" }, await problem_of(reply)));
  tick();
}

function show_node(n) {
  const acts = element("div", { class: "row" });
  if (n.state)
    acts.append(element("button", { type: "button", onclick: () => order(n.pinned ? "unpin" : "pin", n.id) }, n.pinned ? "Unpin" : "Pin"));
  acts.append(element("button", { type: "button", onclick: () => order("drop", n.id) }, "Drop with all after it"));
  settings("node").replaceChildren(element("p", {},
    `Tokens ${n.begin} to ${n.end}, kept as ${n.place}; ${n.state ? "with" : "without"} a state${n.on_disk ? ", on disk" : ""}` +
    `; ${bytes(n.bytes)}, ${n.hits} hits, made ${n.age_seconds.toFixed(0)} s ago, last used ${n.idle_seconds.toFixed(0)} s ago.`), acts);
}

// ---- each second, while somebody looks ----

let timer = null, busy = false;

async function tick() {
  if (busy) return;
  busy = true;
  try {
    const [metrics, cache] = await Promise.all([fetch("/metrics", { headers: headers() }),
      fetch("/v1/cache", { headers: headers() })]);
    for (const reply of [metrics, cache]) if (!reply.ok) throw new Error(await problem_of(reply));
    const m = read_metrics(await metrics.text());
    draw_tiles(figures(m, performance.now()));
    draw_memory(m);
    draw_tree(await cache.json());
    settings("live-state").hidden = true;
  } catch (e) {
    settings("live-state").hidden = false;
    settings("live-state").textContent = "No figures: " + e.message;
  }
  busy = false;
}

function watch() {
  const looked_at = !settings("live").hidden && document.visibilityState === "visible";
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
