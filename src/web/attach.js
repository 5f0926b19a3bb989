// attach.js - files that go along with the next message: dropped, pasted or chosen.
//
// Text goes into the message itself (conversation.js), that of a PDF too; pictures and sounds go as such, to models that see and
// hear.
import { is_document, text_of } from "./documents.js";
import { by_id, bytes, element, icon_button, name_of, shown_of } from "./element.js";
import { is_sound, offer_recording, player, readable } from "./sounds.js";
import { hears_sounds, sees_pictures } from "./state.js";

const TEXT_MOST = 4 << 20, PICTURE_MOST = 20 << 20, SOUND_MOST = 20 << 20; // bytes
const PASTED_LONG = 4000; // characters: a longer paste becomes a file, so that the message stays readable
const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

let files = [], pictures = [], sounds = [];
const reading = new Map();    // file, a document whose text is being taken out: its element
const boxes = new WeakMap();  // file that is attached: its element, so that what was opened stays open

// What is attached, given to the message that goes out.
export function take() {
  const out = {};
  if (files.length) out.files = files;
  if (pictures.length) out.pictures = pictures;
  if (sounds.length) out.sounds = sounds;
  files = [];
  pictures = [];
  sounds = [];
  draw();
  return out;
}
export const any = () => files.length + pictures.length + sounds.length > 0;
// Whether all that was attached can go; says what cannot yet.
export function all_read() {
  complain("");
  for (const file of reading.keys()) complain(`${name_of(file.name)} is still being read`);
  return !reading.size;
}

// Each on a line of its own; "": nothing is wrong any more.
function complain(text) {
  const place = by_id("attach-problem");
  place.textContent = text && place.textContent ? `${place.textContent}\n${text}` : text;
}

// A picture of an attachment.  A data: URL would need img-src data:, so it is shown as a blob of the same bytes.
export function thumbnail(picture) {
  const img = element("img", { class: "thumb", alt: name_of(picture.name) });
  fetch_bytes(picture.url).then((blob) => {
    img.src = URL.createObjectURL(blob);
    img.onload = () => URL.revokeObjectURL(img.src);
  });
  return img;
}
export const heard = (sound) => element("span", { class: "chip" }, element("span", { class: "name" }, name_of(sound.name)), player(sound, fetch_bytes));

async function fetch_bytes(url) {
  const [head, data] = url.split(",");
  const raw = atob(data);
  return new Blob([Uint8Array.from(raw, (c) => c.charCodeAt(0))], { type: /^data:([^;]+)/.exec(head)[1] });
}

export function chip(file) {
  return element("span", { class: "chip" }, element("span", { class: "name" }, name_of(file.name)),
    element("span", { class: "size" }, `${file.text.length.toLocaleString()} characters`));
}

// A text, folded away: what is sent of a file.
export function text_box(file) {
  return element("details", { class: "file" }, element("summary", { title: "Show the text" }, chip(file)),
    element("pre", { tabindex: "0" }, shown_of(file.text)));
}

const remove_button = (one, fn) => icon_button("x-lg", `Remove ${name_of(one.name)}`, () => {
  fn();
  draw();
  by_id("text").focus();
}, { class: "plain-button" }, "✕");

function file_box(f) {
  if (!boxes.has(f)) boxes.set(f, element("div", { class: "doc" }, text_box(f), remove_button(f, () => files.splice(files.indexOf(f), 1))));
  return boxes.get(f);
}

function draw() {
  const without = (list, one) => remove_button(one, () => list.splice(list.indexOf(one), 1));
  by_id("attached").replaceChildren(...files.map(file_box), ...reading.values(),
    ...pictures.map((p) => element("span", { class: "chip" }, thumbnail(p), without(pictures, p))),
    ...sounds.map((s) => {
      const box = heard(s);
      box.append(without(sounds, s));
      return box;
    }));
  by_id("attached").hidden = !any() && !reading.size;
}

function data_url(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

async function decodes(file) {
  try {
    (await createImageBitmap(file)).close();
    return true;
  } catch {
    return false;
  }
}

async function add_sound(file) {
  if (!(await hears_sounds())) return complain(`${file.name}: this model does not hear sounds`);
  try {
    const read = await readable(file);
    if (read.size > SOUND_MOST) complain(`${file.name}: ${bytes(read.size)}; at most ${bytes(SOUND_MOST)}`);
    else sounds.push({ name: file.name, url: await data_url(read) });
  } catch {
    complain(`${file.name} is not a sound that this browser can decode`);
  }
}

async function add_document(file) {
  const abort = new AbortController(), words = element("span", { class: "size" }, "reading");
  reading.set(file, element("span", { class: "chip" }, element("span", { class: "busy" }), element("span", { class: "name" }, name_of(file.name)),
    words, remove_button(file, () => abort.abort())));
  draw();
  try {
    const text = await text_of(file, ({ page, of }) => { words.textContent = `reading page ${page} of ${of}`; }, abort.signal);
    files.push({ name: file.name, text });
  } catch (e) {
    if (!abort.signal.aborted) complain(`${file.name} ${e.message}`);
  }
  reading.delete(file);
}

async function add(file) {
  if (is_sound(file)) return add_sound(file);
  if (is_document(file)) return add_document(file);
  if (PICTURES.includes(file.type)) {
    if (!(await sees_pictures())) complain(`${file.name}: this model does not read images`);
    else if (file.size > PICTURE_MOST) complain(`${file.name}: ${bytes(file.size)}; at most ${bytes(PICTURE_MOST)}`);
    else if (!(await decodes(file))) complain(`${file.name} is damaged, or not an image that this browser can decode`);
    else pictures.push({ name: file.name, url: await data_url(file) });
    return;
  }
  if (file.size > TEXT_MOST) {
    complain(`${file.name}: ${bytes(file.size)}; at most ${bytes(TEXT_MOST)} of text`);
    return;
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes("\0")) throw new Error("binary");
    files.push({ name: file.name, text });
  } catch {
    complain(`${file.name} is neither UTF-8 text nor a PDF, an image or a sound`);
  }
}

async function add_all(list) {
  complain("");
  for (const file of list) await add(file);
  draw();
  by_id("text").focus();
}

// ---- ways in ----

by_id("attach").addEventListener("click", () => by_id("attach-file").click());
by_id("attach-file").addEventListener("change", async (e) => {
  await add_all([...e.target.files]);
  e.target.value = "";
});
by_id("text").addEventListener("paste", (e) => {
  const text = e.clipboardData.getData("text/plain");
  if (e.clipboardData.files.length) {
    e.preventDefault();
    add_all([...e.clipboardData.files]);
  } else if (text.length > PASTED_LONG) {
    e.preventDefault();
    add_all([new File([text], "pasted text", { type: "text/plain" })]);
  }
});

const chat = by_id("chat");
const has_files = (e) => e.dataTransfer?.types.includes("Files");
chat.addEventListener("dragover", (e) => {
  if (!has_files(e)) return;
  e.preventDefault();
  chat.classList.add("drop");
});
chat.addEventListener("dragleave", (e) => {
  if (!chat.contains(e.relatedTarget)) chat.classList.remove("drop");
});
chat.addEventListener("drop", (e) => {
  chat.classList.remove("drop");
  if (!has_files(e)) return;
  e.preventDefault();
  add_all([...e.dataTransfer.files]);
});
offer_recording((file) => add_all([file]), complain);
