// sounds.js - sounds that go along with a message: as files that the server reads, a player, the microphone.
//
// The server reads WAV, FLAC, Ogg and MP3.  What else the browser can decode, such as what its recorder writes, is sent as WAV: one
// channel of 16,000 samples a second, which is what models hear.
import { by_id, draw_before, draw_on, element, icon_button } from "./element.js";
import { hears_sounds } from "./state.js";

const RATE = 16000, READ = /^audio\/(?:x-)?(?:wave?|flac|ogg|mpeg|mp3)$/;

export const is_sound = (file) => file.type.startsWith("audio/");

// 16-bit WAV of samples in [-1, 1].
function wav_of(samples) {
  const out = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const put = (at, text) => [...text].forEach((c, i) => out.setUint8(at + i, c.charCodeAt(0)));
  put(0, "RIFF");
  out.setUint32(4, 36 + 2 * samples.length, true);
  put(8, "WAVEfmt ");
  [[16, 16], [20, 1], [22, 1], [24, RATE], [28, 2 * RATE], [32, 2], [34, 16]].forEach(([at, v]) =>
    [16, 24, 28].includes(at) ? out.setUint32(at, v, true) : out.setUint16(at, v, true));
  put(36, "data");
  out.setUint32(40, 2 * samples.length, true);
  samples.forEach((x, i) => out.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, x)) * 32767, true));
  return new Blob([out.buffer], { type: "audio/wav" });
}

// A file as one that the server reads; throws where the browser cannot decode it.
export async function readable(file) {
  if (READ.test(file.type)) return new Blob([await file.arrayBuffer()], { type: file.type });
  const heard = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  const mixer = new OfflineAudioContext(1, Math.max(1, Math.ceil(heard.duration * RATE)), RATE);
  const from = new AudioBufferSourceNode(mixer, { buffer: heard });
  from.connect(mixer.destination);
  from.start();
  return wav_of((await mixer.startRendering()).getChannelData(0));
}

// A sound of an attachment, to be played; blob gives its bytes.
export function player(sound, blob) {
  const audio = element("audio", { controls: "", "aria-label": sound.name, preload: "metadata" });
  blob(sound.url).then((b) => {
    audio.src = URL.createObjectURL(b);
  });
  return audio;
}

// ---- the microphone ----

// take(file) gets what was recorded; complain(text) what went wrong.
export async function offer_recording(take, complain) {
  if (!navigator.mediaDevices?.getUserMedia || !globalThis.MediaRecorder || !(await hears_sounds())) return;
  let recorder = null;
  const stop = () => recorder?.stop();
  const say = (words) => draw_before(record, "stop-fill", words);
  const record = icon_button("mic", "Record", async () => {
    if (recorder) return stop();
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true }), parts = [];
      recorder = new MediaRecorder(stream);
      const begun = Date.now();
      recorder.ondataavailable = (e) => {
        parts.push(e.data);
        if (recorder?.state === "recording") say(`Stop recording, ${Math.floor((Date.now() - begun) / 1000)} s`);
      };
      recorder.onstop = () => {
        for (const track of stream.getTracks()) track.stop();
        const type = recorder.mimeType.split(";")[0].replace("video/", "audio/");
        recorder = null;
        draw_on(record, "mic", "Record");
        record.removeAttribute("aria-pressed");
        take(new File(parts, `recorded ${new Date().toLocaleTimeString()}`, { type }));
      };
      recorder.start(250);
      say("Stop recording");
      record.setAttribute("aria-pressed", "true");
    } catch (e) {
      complain(`The microphone cannot be used: ${e.message}`);
    }
  }, { id: "record", type: "button" });
  by_id("attach").after(record);
}
