// tree.js - the tree of kept prefixes.  A run of tokens is as long as the root of its length, a dot is a state to go on
// from, a run flashes when one was used; a node can be looked at, pinned and dropped.
import { button, by_id, bytes, element, svg } from "./element.js";
import { ask } from "./server.js";
import { of_model } from "./state.js";

const ROW = 22, LEFT = 8, WIDEST = 900;
let hits = new Map(), chosen = null;

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

export function draw_tree(cache) {
  const { all, rows } = layout(cache.nodes);
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
      // Between the run and its text is the node as well.
      g.append(svg("rect", { class: "reach", x: n.x1, y: y - 4, width: 10, height: 16 }), t);
    }
    picture.append(g);
  }
  const focused = [...document.querySelectorAll("#tree .node")].indexOf(document.activeElement);
  by_id("tree").replaceChildren(picture);
  if (focused >= 0) picture.querySelectorAll(".node")[focused]?.focus();
  hits = new Map(cache.nodes.map((n) => [n.id, n.hits]));
  by_id("tree-note").textContent = cache.nodes.length
    ? `${cache.states} states, ${bytes(cache.bytes)} of ${bytes(cache.bytes_max)}; a dot is a state to resume from, a run flashes when it is used`
    : "The cache is empty.";
}

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
