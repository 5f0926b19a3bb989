// shelf.js - the list of conversations: found, named, taken away, brought back, sent to files and read from them.
import { button, by_id, download, element, icon_button } from "./element.js";
import { exported, imported } from "./conversation.js";
import { all, load, remove, save } from "./keep.js";

let acts = null;      // { open(id), fresh(), writes(id): an answer is being written to it, stop(id): ends that }
let current = "";
let drawn = 0;
let naming = false;   // a new name is being typed in the list

// Buttons for what can be done with the conversation that is shown.
function item(c) {
  const busy = acts.writes(c.id);
  const open = button(c.title, () => {
    acts.open(c.id);
    show_drawer(false);
  }, { class: "open", "aria-current": String(c.id === current), "data-id": c.id, title: c.title });
  if (busy) open.prepend(element("span", { class: "busy", role: "img", "aria-label": "being answered: " }));
  const row = element("li", {}, open);
  if (c.id !== current) return row;
  row.append(element("div", { class: "acts" }, icon_button("pencil", "Rename", () => rename(c, row)),
    icon_button("download", "Export", () => export_list([c], c.title)), icon_button("trash", "Delete", () => take_away(c))));
  return row;
}

export async function refresh(id = current) {
  if (naming && id === current) return;
  const mine = ++drawn;
  naming = false;
  current = id;
  const words = by_id("search").value.trim().toLowerCase();
  const list = (await all()).filter((c) => !words || c.holds(words));
  if (mine !== drawn || naming) return; // a later one is on its way
  const focused = document.activeElement?.closest("#list .open")?.dataset.id;
  by_id("list").replaceChildren(...list.map(item));
  if (focused) by_id("list").querySelector(`[data-id="${focused}"]`)?.focus();
  by_id("shelf-toggle").classList.toggle("busy", list.some((c) => c.id !== current && acts.writes(c.id)));
  by_id("list-note").textContent = list.length ? "" : words ? "None has these words." : `No conversations yet; they stay in this browser, for ${location.host} alone.`;
}

function rename(c, row) {
  const input = element("input", { "aria-label": "New name", maxlength: "200" });
  const form = element("form", { onsubmit: async (e) => {
    e.preventDefault();
    const there = await load(c.id);
    naming = false;
    if (there) {
      there.name = input.value.trim();
      await save(there);
      acts.open(c.id);
    }
    refresh();
  }, onkeydown: (e) => {
    if (e.key !== "Escape") return;
    e.stopPropagation();
    naming = false;
    refresh();
  } }, input);
  naming = true;
  input.value = c.name || c.title;
  row.replaceChildren(form);
  input.select();
}

async function take_away(listed) {
  await acts.stop(listed.id);
  const c = await load(listed.id) ?? listed;
  await remove(c);
  if (c.id === current) acts.fresh();
  else refresh();
  by_id("undo").replaceChildren(`"${c.title}" is deleted. `, button("Undo", async () => {
    await save(c);
    by_id("undo").replaceChildren();
    acts.open(c.id);
  }));
}

// ---- files ----

function export_list(list, name) {
  download(`${name.replace(/[^\p{L}\p{N} ._-]/gu, "_").slice(0, 60)}.json`, "application/json", exported(list));
}

async function import_file(file) {
  try {
    const list = imported(await file.text());
    for (const c of list) await save(c);
    by_id("undo").textContent = `${list.length} imported from ${file.name}.`;
    if (list.length === 1) acts.open(list[0].id);
  } catch (e) {
    by_id("undo").textContent = `${file.name}: ${e.message}`;
  }
  refresh();
}

// ---- the drawer that it is on a narrow screen ----

function show_drawer(on) {
  by_id("shelf").classList.toggle("out", on);
  by_id("shelf-toggle").setAttribute("aria-expanded", String(on));
  if (on) by_id("search").focus();
}

export function begin(given) {
  acts = given;
  by_id("search").addEventListener("input", () => {
    naming = false;
    refresh();
  });
  by_id("new").addEventListener("click", () => {
    acts.fresh();
    show_drawer(false);
  });
  by_id("export").addEventListener("click", async () => export_list(await all(), "weft conversations"));
  by_id("import").addEventListener("click", () => by_id("import-file").click());
  by_id("import-file").addEventListener("change", async (e) => {
    if (e.target.files[0]) await import_file(e.target.files[0]);
    e.target.value = "";
  });
  by_id("shelf-toggle").addEventListener("click", () => show_drawer(!by_id("shelf").classList.contains("out")));
  by_id("shelf").addEventListener("click", (e) => { // outside of it
    if (e.target === by_id("shelf") && e.clientX >= by_id("shelf").getBoundingClientRect().right) show_drawer(false);
  });
  by_id("shelf").addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || !by_id("shelf").classList.contains("out")) return;
    show_drawer(false);
    by_id("shelf-toggle").focus();
  });
}
