// tree.js - the tree of kept prefixes.  A run of tokens is as long as the root of its length, a dot is a state to go on
// from, a run flashes when one was used; a node can be looked at, pinned and dropped.  The tree is one stop of the Tab key;
// arrows go from node to node.
import { button, by_id, bytes, element, svg } from "./element.js";
import { ask } from "./server.js";
import { of_model } from "./state.js";

const ROW = 22, LEFT = 8, WIDEST = 900;
const LEAVES = 60; // rows that are drawn unless all are asked for
let hits = new Map(), chosen = null, stop = null, whole = false;

// Rows by leaf, columns by position: a long run is drawn shorter than it is, by its square root.
function layout(nodes) {
  const known = new Map(nodes.map((n) => [n.id, { ...n, children: [] }]));
  const roots = [];
  for (const n of known.values()) (known.get(n.parent)?.children ?? roots).push(n);
  const far = Math.max(1, ...nodes.map((n) => n.end));
  const x = (pos) => LEFT + Math.sqrt(pos / far) * WIDEST;
  let row = 0;
  const place = (n) => {
    n.x0 = x(n.begin) + (known.get(n.parent)?.state ? 5 : 0);     // next to the dot
    n.x1 = Math.max(x(n.end), n.x0 + 6);
    if (!n.children.length) n.row = row++;
    else {
      n.children.forEach(place);
      n.row = n.children[0].row;
    }
  };
  roots.forEach(place);
  return { all: [...known.values()], rows: row };
}

// The leaves that were used last, with what is before them.
function latest(nodes) {
  const known = new Map(nodes.map((n) => [n.id, n])), inner = new Set(nodes.map((n) => n.parent));
  const leaves = nodes.filter((n) => !inner.has(n.id));
  if (whole || leaves.length <= LEAVES) return { nodes, left_out: 0 };
  const out = new Set();
  for (const leaf of leaves.sort((a, b) => a.idle_seconds - b.idle_seconds).slice(0, LEAVES))
    for (let n = leaf; n && !out.has(n); n = known.get(n.parent)) out.add(n);
  return { nodes: nodes.filter((n) => out.has(n)), left_out: leaves.length - LEAVES };
}

const words_of = (n) => `${n.end} · ${n.place}${n.hits ? " · " + n.hits + " hits" : ""}`;

// Up and down go by rows, left and right to the parent and the first child.
function moved(all, n, key) {
  const at = (row) => all.filter((m) => m.row === row).sort((a, b) => a.begin - b.begin);
  const near = (list) => list.findLast((m) => m.begin <= n.begin) ?? list[0];
  const rows = Math.max(...all.map((m) => m.row));
  const to = { ArrowLeft: () => all.find((m) => m.id === n.parent), ArrowRight: () => n.children[0],
    ArrowUp: () => near(at(n.row - 1)), ArrowDown: () => near(at(n.row + 1)), Home: () => at(0)[0], End: () => at(rows)[0] }[key];
  return to?.() ?? null;
}

export function draw_tree(cache) {
  const { nodes, left_out } = latest(cache.nodes);
  const { all, rows } = layout(nodes);
  if (!all.some((n) => n.id === stop)) stop = all[0]?.id;
  const picture = svg("svg", { width: WIDEST + 160, height: Math.max(rows, 1) * ROW + 12, role: "group",
    "aria-label": "Prefix tree" });
  for (const n of all) {
    const y = n.row * ROW + 10;
    for (const c of n.children)
      if (c.row !== n.row)
        picture.append(svg("path", { class: "edge", d: `M${n.x1} ${y + 4} V${c.row * ROW + 14} H${c.x0}` }));
  }
  for (const n of all) {
    const y = n.row * ROW + 10, was = hits.get(n.id);
    const hit = was !== undefined && n.hits > was;
    const leaf = !n.children.length;
    const g = svg("g", { class: "node" + (hit ? " hit" : ""), tabindex: n.id === stop ? "0" : "-1", role: "button", "data-id": n.id,
      "aria-current": String(chosen === n.id), "aria-label": `${leaf ? words_of(n) : n.hits + " hits"}, tokens ${n.begin} to ${n.end}` });
    g.append(svg("rect", { class: "run" + (n.on_disk ? " on-disk" : ""), x: n.x0, y, width: n.x1 - n.x0, height: 8, rx: 3 }));
    if (n.state) g.append(svg("circle", { class: "state" + (n.pinned ? " pinned" : ""), cx: n.x1, cy: y + 4, r: 4.5 }));
    const choose = () => {
      chosen = n.id;
      go_to(n.id);
      show_node(n);
    };
    g.addEventListener("click", choose);
    g.addEventListener("keydown", (e) => {
      if (e.key === "Enter" || e.key === " ") {
        e.preventDefault();
        choose();
      }
      const to = moved(all, n, e.key);
      if (!to) return;
      e.preventDefault();
      go_to(to.id);
    });
    if (leaf) {
      const t = svg("text", { x: n.x1 + 10, y: y + 8 });
      t.textContent = words_of(n);
      // Between the run and its text is the node as well.
      g.append(svg("rect", { class: "reach", x: n.x1, y: y - 4, width: 10, height: 16 }), t);
    }
    picture.append(g);
  }
  const focused = document.activeElement.closest("#tree .node") !== null;
  by_id("tree").replaceChildren(picture);
  if (focused) go_to(stop);
  by_id("tree-all").hidden = !left_out && !whole;
  by_id("tree-all").textContent = whole ? "Show the latest" : `Show all: ${left_out} more`;
  hits = new Map(cache.nodes.map((n) => [n.id, n.hits]));
  by_id("tree-note").textContent = cache.nodes.length
    ? `${cache.states} states, ${bytes(cache.bytes)} of ${bytes(cache.bytes_max)}; a dot is a state to resume from, a run flashes when it is used`
    : "The cache is empty.";
}

function go_to(id) {
  stop = id;
  for (const g of document.querySelectorAll("#tree .node")) {
    g.setAttribute("tabindex", g.dataset.id === String(id) ? "0" : "-1");
    if (g.dataset.id === String(id)) g.focus();
  }
}

by_id("tree-all").addEventListener("click", () => {
  whole = !whole;
  document.dispatchEvent(new CustomEvent("ordered"));
});

// ---- one node ----

async function order(verb, node) {
  try {
    await ask(of_model("/v1/cache/" + verb), { method: "POST", body: { node } });
  } catch (e) {
    by_id("node").append(element("p", { class: "problem" }, e.message));
  }
  document.dispatchEvent(new CustomEvent("ordered"));
}

async function show_text(n) {
  const place = element("pre", { tabindex: "0", "aria-label": "Text of the node" }, "…");
  by_id("node").append(place);
  try {
    place.textContent = (await (await ask(of_model("/v1/cache/nodes/" + n.id))).json()).text;
  } catch (e) {
    place.replaceWith(element("p", { class: "hint" }, e.message));
  }
}

function show_node(n) {
  const acts = element("div", { class: "row" });
  if (n.state) acts.append(button(n.pinned ? "Unpin" : "Pin", () => order(n.pinned ? "unpin" : "pin", n.id)));
  acts.append(button("Drop with all after it", () => order("drop", n.id)));
  by_id("node").replaceChildren(element("p", {},
    `Tokens ${n.begin} to ${n.end}, kept as ${n.place}; ${n.state ? "with" : "without"} a state${n.on_disk ? ", on disk" : ""}` +
    `; ${bytes(n.bytes)}, ${n.hits} hits, created ${n.age_seconds.toFixed(0)} s ago, last used ${n.idle_seconds.toFixed(0)} s ago.`), acts);
  show_text(n);
}
