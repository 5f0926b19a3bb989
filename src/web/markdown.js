// markdown.js - what a model wrote, as elements.
//
// A model's text is hostile: it may repeat what a web page or a tool told it.  marked turns markdown into HTML, in which
// tags of the text itself are shown as text, except a few that only format it; DOMPurify then lets pass the few elements and
// attributes listed here and nothing else, whatever marked made.  Formulas and code are drawn afterwards, in elements
// that are already clean: KaTeX builds MathML by DOM calls, highlight.js makes spans that are cleaned again.  Pictures are
// shown as links, since fetching one would tell its server that, and when, the answer was read.
import { copy_button, element, few_marks, shown_of } from "./element.js";
import { has, library, loaded } from "./libraries.js";

const LONGEST = 200000; // characters: beyond it a text is shown as it is
const LONGEST_CODE = 30000; // characters: beyond it code has no colours
const DRAWN = 2000; // formulas, or stretches of code, that are drawn of one text
// The allowance of a text: characters of each stretch of running words times the marks in it, which is what the search for the ends of
// marks takes at worst.  Where it is spent, running words stay as they are written.
const WORK = 40e6;
const MARK = /[_*`[\]$\\<~!]/g;
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
  shown_of(source).split(/```[^\n]*\n?/).forEach((part, i) => {
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
    start: (text) => (work < 0 ? undefined : text.match(begin)?.index),
    tokenizer(text) {
      if (text[0] !== "$" && text[0] !== "\\") return undefined;
      if (level === "block") work -= 8 * text.length; // a search that goes back and forth
      const m = work < 0 ? null : rule.exec(text);
      return m ? { type: name, raw: m[0], tex: m.slice(1).find((t) => t !== undefined),
        block: level === "block" || m[1] !== undefined || m[2] !== undefined } : undefined;
    },
    renderer: (t) => (level === "block" ? `<div class="math block">${escaped(t.tex)}</div>`
      : `<span class="math${t.block ? " block" : ""}">${escaped(t.tex)}</span>`),
  };
}

let work = 0; // that is left for the text that is being formed

function bound_work(Lexer) {
  const form = Lexer.prototype.inlineTokens;
  Lexer.prototype.inlineTokens = function (text, tokens = []) {
    work -= text.length * (text.match(MARK)?.length ?? 0);
    if (work >= 0) return form.call(this, text, tokens);
    tokens.push({ type: "text", raw: text, text: escaped(text) });
    return tokens;
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
    tokenizer: {
      inlineText() {
        this.lexer.state.inRawBlock = false; // text after <kbd> or <script> is text
        return false;
      },
      lheading(text) {
        const end = work < 0 ? 0 : text.indexOf("\n\n");
        work -= end < 0 ? text.length : end; // it looks for its line up to there
        return work < 0 ? undefined : false; // false: as marked does it
      },
    },
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
  bound_work(marked.Lexer);
  purify.addHook("uponSanitizeAttribute", (node, data) => {
    if (data.attrName === "class" && !OWN_CLASS.test(data.attrValue)) data.keepAttr = false;
  });
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (node.localName !== "a") return;
    if (!LINKS.test(node.getAttribute("href"))) node.removeAttribute("href"); // an empty one leads to this page
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
  if (!hljs.getLanguage(language) || node.textContent.length > LONGEST_CODE) return;
  try {
    const html = hljs.highlight(language, node.textContent, true).value;
    node.replaceChildren(globalThis.DOMPurify.sanitize(html, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"],
      ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true }));
  } catch { /* it stays as it was */ }
}

const drawers = [["katex.js", ".math:not(.drawn)", draw_math], ["highlight.js", "code[class*=language-]:not(.drawn)", draw_code]];
function draw(root) {
  for (const [name, selector, fn] of drawers) {
    const nodes = (all) => [...all.querySelectorAll(selector)].slice(0, DRAWN);
    if (!has(name) || !root.querySelector(selector)) continue;
    const there = loaded(name);
    if (there) nodes(root).forEach((n) => fn(n, there));
    else library(name).then((it) => nodes(document).forEach((n) => fn(n, it)));
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
  work = WORK;
  try {
    out = globalThis.DOMPurify.sanitize(globalThis.marked.parse(few_marks(source)), CLEAN);
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
