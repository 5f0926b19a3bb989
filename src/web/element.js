// element.js - making and finding elements of the page.
import { drawings } from "./icons.js";

export const by_id = (id) => document.getElementById(id);

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  e.append(...children);
  return e;
}

// An attribute whose name begins with "on" is a listener; null and false mean that there is none.  Children that are
// strings become text.
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, label);
}

// The icon of this name, or null: this build has none.
function icon(name) {
  if (!Object.keys(drawings).length) return null;
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, ...drawings[name].map(([part, at]) => svg(part, at)));
}

// Has a button show an icon alone, with its name for screen readers and as a tip; without icons it shows words.
export function draw_on(b, drawing, name, words = name) {
  const drawn = icon(drawing), named = drawn || name !== words;
  b.classList.toggle("drawn", drawn !== null);
  b.replaceChildren(drawn ?? words);
  for (const at of ["aria-label", "title"])
    if (named) b.setAttribute(at, name);
    else b.removeAttribute(at);
  return b;
}
export const icon_button = (drawing, name, onclick, attributes = {}, words = name) =>
  draw_on(button("", onclick, attributes), drawing, name, words);

// Has a button show an icon before words, which are its name.
export function draw_before(b, drawing, words = b.textContent) {
  b.classList.remove("drawn");
  for (const at of ["aria-label", "title"]) b.removeAttribute(at);
  b.replaceChildren(...[icon(drawing), words].filter((part) => part));
  return b;
}

// The buttons of index.html: data-icon is shown alone, data-icon-before before the words.
export function draw_all() {
  for (const b of document.querySelectorAll("[data-icon]")) draw_on(b, b.dataset.icon, b.getAttribute("aria-label") ?? b.textContent, b.textContent);
  for (const b of document.querySelectorAll("[data-icon-before]")) draw_before(b, b.dataset.iconBefore);
}

export function bytes(n) {
  const unit = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1024 && i < unit.length - 1; i++) n /= 1024;
  return n.toFixed(n < 10 && i ? 1 : 0) + " " + unit[i];
}

// Text to the clipboard.  Pages that came over plain HTTP from another machine have no clipboard of their own: there the
// old command does it.
async function to_clipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = element("textarea", { class: "off-screen" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// What is shown of a text: a browser takes long to lay out megabytes, or thousands of marks on one letter.
const SHOWN_MOST = 300000; // characters
export const few_marks = (text) => text.replace(/(\p{M}{30})\p{M}+/gu, "$1");
export function shown_of(whole) {
  const text = few_marks(whole), more = text.length - SHOWN_MOST;
  return more <= 0 ? text : `${text.slice(0, SHOWN_MOST)}\n… ${more} more characters are not shown; copies and files have them.`;
}

// A name, which is one line: of a file, a tool.  One of megabytes took the browser 20 seconds to lay out.
const NAME_MOST = 200; // characters
export function name_of(whole) {
  const text = few_marks(whole.slice(0, 2 * NAME_MOST));
  return text.length > NAME_MOST || whole.length > 2 * NAME_MOST ? text.slice(0, NAME_MOST - 1) + "…" : text;
}

// A button that copies what text() gives, and says that it has.
export function copy_button(text, label = "Copy") {
  const b = icon_button("clipboard", label, async () => {
    try {
      await to_clipboard(text());
      draw_before(b, "check-lg", "Copied");
    } catch {
      draw_before(b, "x-lg", "Not copied");
    }
    setTimeout(() => draw_on(b, "clipboard", label), 1500);
  }, { class: "copy" });
  return b;
}

// A file for the person to keep.
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
