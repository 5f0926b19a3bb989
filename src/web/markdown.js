// markdown.js - what a model wrote, as elements.
//
// A model's text is hostile: it may repeat what a web page or a tool told it.  marked turns markdown into HTML, in which
// tags of the text itself are shown as text, except a few that only format it; DOMPurify then lets pass the few elements and
// attributes listed here and nothing else, whatever marked made.  Formulas and code are drawn afterwards, in elements
// that are already clean: KaTeX builds MathML by DOM calls, highlight.js makes spans that are cleaned again.  Pictures are
// shown as links, since fetching one would tell its server that, and when, the answer was read.
import { copy_button, element } from "./element.js";
import { has, library, loaded } from "./libraries.js";

const LONGEST = 400000; // characters: beyond it a text is shown as it is
const LINKS = /^(?:https?:\/\/|mailto:)/i;
const FORMING = /^<\/?(?:b|br|del|em|i|ins|kbd|mark|s|small|strong|sub|sup|u)\s*\/?>$/i;
const CLEAN = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "ins",
    "kbd", "li", "mark", "ol", "p", "pre", "s", "small", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr",
    "u", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: LINKS,
  ADD_URI_SAFE_ATTR: ["align", "start"],
  RETURN_DOM_FRAGMENT: true,
};
const OWN_CLASS = /^(?:language-[\w+#.-]+|math|math block|hljs-[\w-]+)$/;

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// ---- plain text, for builds without the libraries ----

// Fences and `code` as elements, all else as it is.
function plain(source) {
  const out = element("div", { class: "plain" });
  source.split(/```[^\n]*\n?/).forEach((part, i) => {
    if (i % 2) {
      out.append(element("pre", {}, element("code", {}, part)));
      return;
    }
    part.split(/`([^`\n]+)`/).forEach((piece, j) => out.append(j % 2 ? element("code", {}, piece) : piece));
  });
  return out;
}

// ---- with marked and DOMPurify ----

// $$...$$, \[...\], \(...\) and $...$, the last only where no amounts of money can be meant.
const BLOCK_MATH = /^(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\])(?:\n|$)/;
const INLINE_MATH = /^(?:\$\$([^$\n]+?)\$\$|\\\[([^\n]+?)\\\]|\\\((.+?)\\\)|\$(?![\s\d]*\s)((?:[^$\n\\]|\\.)+?)(?<!\s)\$(?!\d))/;

function math_extension(name, level, rule, begin) {
  return {
    name, level,
    start: (text) => text.match(begin)?.index,
    tokenizer(text) {
      const m = rule.exec(text);
      return m ? { type: name, raw: m[0], tex: m.slice(1).find((t) => t !== undefined),
        block: level === "block" || m[1] !== undefined || m[2] !== undefined } : undefined;
    },
    renderer: (t) => (level === "block" ? `<div class="math block">${escaped(t.tex)}</div>`
      : `<span class="math${t.block ? " block" : ""}">${escaped(t.tex)}</span>`),
  };
}

let ready = false;
function prepare(marked, purify) {
  if (ready) return;
  ready = true;
  // DOMPurify 2.4.1+deb12u1 reads this variable, which it does not declare there, before it begins (a hunk of a security
  // fix is one function too far down): with depth 0 it goes on, and its checks of depth stay as they are.
  globalThis.shadowNode ??= { __depth: 0 };
  marked.use({
    gfm: true, breaks: true, headerIds: false, mangle: false,
    extensions: has("katex.js") ? [math_extension("math_block", "block", BLOCK_MATH, /\n(?:\$\$|\\\[)/),
      math_extension("math_inline", "inline", INLINE_MATH, /\$|\\[[(]/)] : [],
    renderer: {
      html: (text) => text.replace(/<[^>]*>?/g, (tag) => (FORMING.test(tag) ? tag : escaped(tag))),
      image: (href, title, text) => `<a href="${escaped(href ?? "")}">${text || escaped(href ?? "")}</a>`,
      checkbox: (on) => (on ? "☑ " : "☐ "),
      code: (text, info) => {
        const language = /^[\w+#.-]+/.exec(info ?? "");
        return `<pre><code${language ? ` class="language-${escaped(language[0])}"` : ""}>${escaped(text)}</code></pre>`;
      },
    },
  });
  purify.addHook("uponSanitizeAttribute", (node, data) => {
    if (data.attrName === "class" && !OWN_CLASS.test(data.attrValue)) data.keepAttr = false;
  });
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (node.localName !== "a") return;
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  });
}

function frame_code(pre) {
  const code = pre.firstElementChild ?? pre;
  const language = /language-(\S+)/.exec(code.className)?.[1] ?? "";
  const frame = element("div", { class: "code" }, element("div", { class: "code-head" }, element("span", {}, language),
    copy_button(() => code.textContent)));
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  frame.append(pre);
}

// ---- formulas and code: drawn when their library is there ----

function draw_math(node, katex) {
  const tex = node.textContent;
  node.classList.add("drawn");
  try {
    katex.render(tex, node, { output: "mathml", displayMode: node.classList.contains("block"), throwOnError: true, trust: false,
      strict: "ignore", maxSize: 20, maxExpand: 200 });
  } catch {
    node.textContent = tex;
    node.classList.add("source");
  }
}

function draw_code(node, hljs) {
  const language = /language-(\S+)/.exec(node.className)?.[1];
  node.classList.add("drawn");
  if (!hljs.getLanguage(language)) return;
  try {
    const html = hljs.highlight(language, node.textContent, true).value;
    node.replaceChildren(globalThis.DOMPurify.sanitize(html, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"],
      ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true }));
  } catch { /* it stays as it was */ }
}

const drawers = [["katex.js", ".math:not(.drawn)", draw_math], ["highlight.js", "code[class*=language-]:not(.drawn)", draw_code]];
function draw(root) {
  for (const [name, selector, fn] of drawers) {
    const nodes = root.querySelectorAll(selector);
    if (!nodes.length || !has(name)) continue;
    const there = loaded(name);
    if (there) nodes.forEach((n) => fn(n, there));
    else library(name).then((it) => document.querySelectorAll(selector).forEach((n) => fn(n, it)));
  }
}

// ---- what the page calls ----

// Before the first markdown() that is to be formed.  Without the libraries there is nothing to wait for.
export async function load_markdown() {
  const [marked, purify] = await Promise.all([library("marked.js"), library("dompurify.js")]);
  if (marked && purify?.isSupported) prepare(marked, purify);
}

export function markdown(source) {
  if (!ready || source.length > LONGEST) return plain(source);
  let out;
  try {
    out = globalThis.DOMPurify.sanitize(globalThis.marked.parse(source), CLEAN);
  } catch { // nested too deeply
    return plain(source);
  }
  out.querySelectorAll("pre").forEach(frame_code);
  out.querySelectorAll("table").forEach((t) => {
    const around = element("div", { class: "wide" });
    t.replaceWith(around);
    around.append(t);
  });
  draw(out);
  return out;
}
