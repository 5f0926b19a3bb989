// chat.js - the conversation that is shown, and asking.  Each conversation has at most one answer that is being written,
// and those of several are written at once.
import "./tabs.js";
import { Answer } from "./answer.js";
import { all_read, any, take } from "./attach.js";
import { button, by_id, draw_all, element } from "./element.js";
import { Conversation } from "./conversation.js";
import * as keep from "./keep.js";
import { load_markdown } from "./markdown.js";
import * as shelf from "./shelf.js";
import { read, settings_for_new, settings_from, show_settings, write } from "./settings.js";
import { look } from "./state.js";
import { draw_turn, edit_in } from "./turn.js";

// A browser has six connections to a server: one is left to ask how it is.
const RUN_MOST = 5;
const NEAR = 60; // pixels from the end within which the log follows what is written
const log = by_id("log"), turns = by_id("turns"), text = by_id("text");
let conversation = new Conversation();
const running = new Map();  // id of a conversation: its Answer; open() shows the conversation that the answer knows
const problems = new Map(); // id of a conversation: { message, parent } of the answer that failed last
let following = true;

// ---- what is shown ----

// The log follows what is written until the person scrolls up.  Scroll events come late, after more was written: one that
// finds the log where this page put it tells nothing of the person.  Nor does one that finds another height, unless the
// person has just done what can scroll: the browser moves a log that becomes shorter, also if it is longer again by then.
const JUST_MS = 500, SCROLLING_KEYS = ["ArrowUp", "PageUp", "Home", " "];
let put_at = 0, was_at = 0, tall = 0, acted = -Infinity;
const just_acted = () => { acted = performance.now(); };
for (const act of ["wheel", "touchmove"]) log.addEventListener(act, just_acted, { passive: true });
log.addEventListener("pointerdown", (e) => e.target === log && just_acted()); // its scrollbar
addEventListener("keydown", (e) => SCROLLING_KEYS.includes(e.key) && !e.target.closest("input, textarea, select") && just_acted());

const to_go = () => log.scrollHeight - log.scrollTop - log.clientHeight;
const at_end = () => to_go() < NEAR;

function to_end() {
  log.scrollTop = log.scrollHeight;
  put_at = was_at = log.scrollTop;
  tall = log.scrollHeight;
}

function follow() {
  following = true;
  to_end();
  show_following();
}

function show_following() {
  log.classList.toggle("following", following);
  by_id("to-end").hidden = following || at_end();
}

log.addEventListener("scroll", () => {
  if (following && log.scrollHeight !== tall && performance.now() - acted > JUST_MS) return; // sizes brings it to the end
  if (to_go() < 2) { // also where the log became shorter
    following = true;
    put_at = log.scrollTop;
  } else if (Math.abs(log.scrollTop - put_at) > 1) {
    following = log.scrollTop >= was_at && (following || at_end());
    put_at = -Infinity;
  }
  was_at = log.scrollTop;
  show_following();
});
const sizes = new ResizeObserver(() => {
  if (following) to_end();
  show_following();
});
sizes.observe(turns);
sizes.observe(log);
by_id("to-end").addEventListener("click", () => {
  follow();
  text.focus();
});

function problem_box({ message, parent }) {
  const again = parent === undefined ? [] : [element("div", { class: "acts" }, button("Try again", () => answer(parent)))];
  return element("div", { class: "message failed", role: "alert" }, element("p", { class: "problem" }, message), ...again);
}

// What a person typed and did not send, of each conversation; of the new one under "new".
const DRAFTS = "weft.drafts";
const draft_of = () => (conversation.turns.length ? conversation.id : "new");
function keep_draft() {
  const { [draft_of()]: was, ...rest } = read("sessionStorage", DRAFTS, {});
  write("sessionStorage", DRAFTS, text.value ? { ...rest, [draft_of()]: text.value } : rest);
}
function show_draft() {
  text.value = read("sessionStorage", DRAFTS, {})[draft_of()] ?? "";
  fit();
}

const writes = () => running.get(conversation.id) ?? null; // the answer to the conversation that is shown

function draw() {
  const mine = writes(), problem = problems.get(conversation.id);
  const whole = conversation.path(), asked = whole.findIndex((t) => t.id === mine?.parent);
  const path = mine && !mine.from ? whole.slice(0, asked + 1) : whole;
  const boxes = path.map((t, i) => (mine?.from === t ? mine.box : draw_turn(t, conversation, i === path.length - 1, acts)));
  if (mine && !mine.from) boxes.push(mine.box);
  if (problem && !mine) boxes.push(problem_box(problem));
  const here = [turns, by_id("stop")].some((place) => place.contains(document.activeElement));
  turns.replaceChildren(...boxes);
  by_id("empty").hidden = boxes.length > 0;
  by_id("stop").hidden = !mine;
  by_id("send").disabled = mine !== null;
  // Not where a finger presses: a keyboard would come up.
  if (here && !document.activeElement.offsetParent && matchMedia("(pointer: fine)").matches) text.focus();
  if (mine) for (const b of turns.querySelectorAll(".acts button:not(.copy), .results button")) b.disabled = true;
}

async function show(c) {
  const another = c.id !== conversation.id;
  if (another) by_id("removed").replaceChildren();
  conversation = c;
  if (another) show_draft();
  history.replaceState(null, "", c.turns.length ? "#" + c.id : location.pathname);
  draw();
  follow();
  set_by_person();
  shelf.refresh(c.id);
}

// The settings of the conversation that is shown; the person may change them.  One of an earlier version has none until it is
// asked again.
function set_by_person() {
  const c = conversation;
  show_settings(c.turns.length ? settings_from(c.settings) ?? settings_for_new() : null, (now) => {
    c.settings = now;
    keep_it(c);
  });
}

async function keep_it(c) {
  try {
    await keep.save(c);
  } catch (e) {
    by_id("undo").textContent = "This conversation was not saved: " + e.message;
  }
  if (c === conversation) history.replaceState(null, "", "#" + c.id);
  await catch_up(c);
  shelf.refresh(conversation.id);
}

// What another window did to a conversation while an answer was written to it here comes in when that is kept.
async function catch_up(c) {
  if (!c.behind) return;
  const now = await keep.load(c.id);
  if (c !== conversation || running.has(c.id) || !now) return;
  conversation = now;
  draw();
}

// ---- asking ----

function problem_of(mine) {
  if (mine.problem) return { message: mine.problem.message, parent: mine.is_turn ? undefined : mine.parent };
  return mine.is_turn ? null : { message: "Stopped before the answer began.", parent: mine.parent };
}

// Puts an answer that has ended into its conversation.
function settle({ conversation: c, turn, from, parent, is_turn }) {
  if (from) {
    // The longer answer in the place of the one that was cut, unless another window may have gone on from that.
    if (turn.content === from.content && turn.cut) return;
    if (!c.behind) c.remove(from);
    c.add(parent, turn);
  } else if (is_turn && c.turns.some((t) => t.id === parent)) {
    c.add(parent, turn); // under the branch that was asked, which may not be the one that is shown by now
  }
}

async function await_answer(mine) {
  const c = mine.conversation;
  await mine.run();
  running.delete(c.id);
  const problem = problem_of(mine);
  if (problem) problems.set(c.id, problem);
  if (mine.problem?.status === 0) look();
  settle(mine);
  by_id("full").textContent = "";
  if (c === conversation) draw();
  if (c.turns.length) await keep_it(c);
}

// Whether another answer may begin here; says why not.
function may_ask() {
  const full = !writes() && running.size >= RUN_MOST;
  by_id("full").textContent = full ? `${RUN_MOST} answers are being written, as many as this page asks for at once.` : "";
  return !full && !writes();
}

// Has an answer written to the turn of this id, or has one that was cut go on.
function answer(parent, from = null) {
  if (!may_ask()) return;
  conversation.settings = settings_from(conversation.settings) ?? settings_for_new();
  set_by_person();
  const mine = new Answer(conversation, parent, from);
  problems.delete(conversation.id);
  running.set(conversation.id, mine);
  draw();
  follow();
  mine.ended = await_answer(mine);
  shelf.refresh(conversation.id);
}

// Ends the answer to a conversation; over once what there was of it is kept.
async function stop(id) {
  const mine = running.get(id);
  mine?.abort.abort();
  await mine?.ended;
}

// Messages that were deleted from c.
async function bring_back(c, gone) {
  if (running.has(c.id)) return;
  const there = c === conversation ? c : (await keep.load(c.id)) ?? c;
  there.bring_back(gone);
  await keep_it(there);
  await show(there);
}

const acts = {
  edit(turn, box) {
    edit_in(box, turn.content, turn.role === "user" ? "Send" : "Save", (content) => {
      if (!may_ask() || (!content.trim() && !turn.files && !turn.pictures && !turn.sounds)) return false;
      const { id, parent, stats, cut, ...rest } = turn;
      const added = conversation.add(parent, { ...rest, content });
      if (turn.role === "user") {
        answer(added.id);
      } else {
        draw();
        keep_it(conversation);
      }
      return true;
    });
  },
  again(turn) {
    answer(turn.parent); // another branch
  },
  go_on(turn) {
    answer(turn.parent, turn);
  },
  remove(turn) {
    if (writes()) return;
    const c = conversation, gone = c.remove(turn), n = gone.turns.length;
    problems.delete(c.id);
    draw();
    if (c.turns.length) keep_it(c);
    else keep.remove(c).then(() => shelf.refresh());
    by_id("removed").replaceChildren(n > 1 ? `${n} messages are deleted. ` : "The message is deleted. ",
      button("Undo", () => bring_back(c, gone)));
  },
  show(turn) {
    if (writes()) return;
    conversation.show(turn);
    problems.delete(conversation.id);
    draw();
    keep_it(conversation);
  },
  results(turn, values) {
    if (!may_ask()) return false;
    let at = turn.id;
    turn.tool_calls.forEach((c, i) => {
      at = conversation.add(at, { role: "tool", tool_call_id: c.id, name: c.function.name, content: values[i] }).id;
    });
    answer(at);
    return true;
  },
};

by_id("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  if (!all_read() || (!text.value.trim() && !any()) || !may_ask()) return;
  const content = text.value;
  text.value = "";
  keep_draft();
  fit();
  const turn = conversation.say({ content, ...take() });
  keep_it(conversation);
  answer(turn.id);
});

// The box is as high as its text, up to a third of the window.
function fit() {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight + 2, innerHeight / 3)}px`;
}
text.addEventListener("input", () => {
  fit();
  keep_draft();
});

text.addEventListener("keydown", (e) => {
  if (e.key === "ArrowUp" && !text.value) {
    const mine = [...turns.querySelectorAll(".message.user")].at(-1);
    mine?.querySelector(".acts .edit")?.click();
    e.preventDefault();
  }
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  by_id("ask").requestSubmit();
});
by_id("stop").addEventListener("click", () => stop(conversation.id));
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && !document.querySelector("dialog[open]")) stop(conversation.id);
});

// ---- the beginning ----

draw_all();

let opening = null; // id of the conversation that is being read

async function open(id) {
  opening = id;
  const c = running.get(id)?.conversation ?? await keep.load(id);
  if (opening === id) opening = null;
  show(running.get(id)?.conversation ?? c ?? new Conversation());
}

function fresh() {
  show(new Conversation());
  text.focus();
}

keep.on_change(async (id) => {
  const mine = running.get(id);
  if (mine) mine.conversation.behind = true;
  else if (id === conversation.id || id === opening) return open(id);
  shelf.refresh();
});
shelf.begin({ open, fresh, stop, writes: (id) => running.has(id) });
look();
await load_markdown();
await open(location.hash.slice(1));
if (!(await keep.is_kept())) by_id("undo").textContent = "This browser cannot store conversations: they are lost when the page is closed.";
