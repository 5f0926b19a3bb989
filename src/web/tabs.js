// tabs.js - the two views, one shown at a time; the arrow keys go between their tabs.
import { by_id } from "./element.js";

const tabs = [by_id("tab-chat"), by_id("tab-live")];

function show(tab) {
  for (const t of tabs) {
    const on = t === tab;
    t.setAttribute("aria-selected", on);
    t.tabIndex = on ? 0 : -1;
    by_id(t.getAttribute("aria-controls")).hidden = !on;
  }
  document.dispatchEvent(new CustomEvent("view"));
}

for (const t of tabs) {
  t.addEventListener("click", () => show(t));
  t.addEventListener("keydown", (e) => {
    if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
    const other = tabs[1 - tabs.indexOf(t)];
    show(other);
    other.focus();
  });
}
