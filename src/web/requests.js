// requests.js - running and waiting requests, a row each: the batch first, then those that wait.
import { by_id, element, icon_button } from "./element.js";
import { ask } from "./server.js";

const ORDER = ["decode", "prefill", "waiting", "preparing"];
const HEADS = ["State", "Client", "Endpoint", "Prompt", "Cached", "Output", "Age", ""];

async function cancel(id) {
  try {
    await ask("/v1/requests/" + encodeURIComponent(id), { method: "DELETE" });
  } catch { /* it had ended */ }
  document.dispatchEvent(new CustomEvent("ordered"));
}

function row(r) {
  const most = r.max_tokens ? ` of ${r.max_tokens}` : "";
  const cells = [r.state, r.client ?? "", r.path, r.prompt_tokens ?? "", r.cached_tokens ?? "",
    r.output_tokens === undefined ? "" : r.output_tokens + most, r.age_seconds.toFixed(1) + " s"];
  return element("tr", {}, ...cells.map((c) => element("td", {}, String(c))),
    element("td", {}, icon_button("x-lg", "Cancel " + r.id, () => cancel(r.id), {}, "Cancel")));
}

export function draw_requests(list) {
  const rows = list.sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.age_seconds - a.age_seconds);
  by_id("requests").replaceChildren(rows.length
    ? element("table", {}, element("thead", {}, element("tr", {}, ...HEADS.map((h) => element("th", { scope: "col" }, h)))),
      element("tbody", {}, ...rows.map(row)))
    : element("p", { class: "hint" }, "No requests."));
}
