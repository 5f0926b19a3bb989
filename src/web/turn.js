// turn.js - one turn of a conversation on the page: its text, and what can be done with it.
import { heard, text_box, thumbnail } from "./attach.js";
import { call_box, calls_form } from "./calls.js";
import { button, by_id, copy_button, draw_before, element, icon_button, name_of, shown_of } from "./element.js";
import { markdown } from "./markdown.js";

const EARLIEST = Date.UTC(2020); // what is less only orders turns
const SPEAKER = { user: "You", assistant: "Model" };

// The time of day, with the date where that is not today's.
function time_of(at) {
  const when = new Date(at), today = when.toDateString() === new Date().toDateString();
  return element("time", { datetime: when.toISOString(), title: when.toLocaleString() },
    when.toLocaleString([], { ...(today ? {} : { day: "numeric", month: "short", year: "numeric" }), hour: "2-digit", minute: "2-digit" }));
}

// at: when it was said, in ms; files of earlier versions do not tell.
export function box_of(role, name, at) {
  return element("article", { class: "message " + role },
    element("div", { class: "speaker" }, element("span", { class: "name" }, name ?? SPEAKER[role]), ...(at > EARLIEST ? [" · ", time_of(at)] : [])));
}

// turn.thought: how long it took; turns of earlier versions do not tell.
export const thought_words = (turn) => (turn?.thought ? `Thought for ${name_of(turn.thought)}` : "Thinking");

// Thoughts, folded away once they are over.  The text is the second child.
export function thought_box(open, turn = null) {
  return element("details", { class: "thought", open }, element("summary", {}, thought_words(turn)), element("div", { class: "text" }));
}

// ‹ 2 of 3 › : the branches at this turn.  show(turn) brings one up.
function branches(turn, conversation, show) {
  const all = conversation.branches(turn.parent), at = all.indexOf(turn);
  if (all.length < 2) return [];
  return [element("span", { class: "branches" },
    icon_button("chevron-left", "Earlier version", () => show(all[at - 1]), { disabled: at === 0 }, "‹"),
    element("span", {}, `${at + 1} of ${all.length}`),
    icon_button("chevron-right", "Later version", () => show(all[at + 1]), { disabled: at === all.length - 1 }, "›"))];
}

// Puts an editor in the place of the box's body.  done(text) says whether it may close.
export function edit_in(box, text, label, done) {
  if (box.querySelector(".editor")) return;
  const area = element("textarea", { rows: String(Math.min(12, 2 + text.split("\n").length)), "aria-label": "Edited message" });
  const close = () => {
    editor.remove();
    box.classList.remove("edited");
    by_id("text").focus();
  };
  const editor = element("form", { class: "editor",
    onsubmit: (e) => {
      e.preventDefault();
      if (done(area.value)) close();
    },
    onkeydown: (e) => {
      if (e.key === "Escape") close();
      else if (e.key !== "Enter" || !(e.ctrlKey || e.metaKey)) return;
      else editor.requestSubmit();
      e.stopPropagation();
      e.preventDefault();
    },
  }, area, element("div", { class: "row" }, element("button", { type: "submit" }, label), button("Cancel", close)));
  area.value = text;
  box.append(editor);
  box.classList.add("edited");
  area.focus();
}

// acts: { edit, again, go_on, remove, show, results }, each of a turn and perhaps more.  last: nothing follows it.
export function draw_turn(turn, conversation, last, acts) {
  const name = turn.role === "tool" ? "Result of " + name_of(turn.name ?? "a tool") : turn.model ? name_of(turn.model) : undefined;
  const box = box_of(turn.role, name, turn.at);
  if (turn.reasoning_content) {
    const thought = thought_box(false, turn);
    thought.lastChild.append(shown_of(turn.reasoning_content));
    box.append(thought);
  }
  const attached = [...(turn.files ?? []).map(text_box), ...(turn.pictures ?? []).map(thumbnail), ...(turn.sounds ?? []).map(heard)];
  if (attached.length) box.append(element("div", { class: "files" }, ...attached));
  if (turn.content)
    box.append(element("div", { class: "text" }, turn.role === "assistant" ? markdown(turn.content) : shown_of(turn.content)));
  const open = turn.tool_calls && last && !turn.cut;
  if (!open) for (const c of turn.tool_calls ?? []) box.append(call_box(c));
  if (turn.stats) box.append(element("div", { class: "stats" }, name_of(turn.stats)));
  const row = element("div", { class: "acts" }, ...branches(turn, conversation, acts.show), copy_button(() => turn.content, "Copy"));
  if (turn.role !== "tool") row.append(icon_button("pencil", "Edit", () => acts.edit(turn, box), { class: "edit" }));
  if (turn.role === "assistant") {
    if (turn.cut && turn.content && last && !turn.tool_calls) row.append(draw_before(button("Continue", () => acts.go_on(turn)), "play"));
    row.append(icon_button("arrow-clockwise", "Regenerate", () => acts.again(turn)));
  }
  row.append(icon_button("trash", "Delete", () => acts.remove(turn)));
  box.append(row);
  if (open) box.append(calls_form(turn, conversation, (values) => acts.results(turn, values)));
  return box;
}
