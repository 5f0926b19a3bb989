// One sound by OpenAI's official client, before a bundled model with a random ear: in a chat, as a stream, in a response, and as a
// transcription.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import OpenAI, { toFile } from 'openai';
import { PATIENCE, serve } from './server.mjs';

const tree = join(dirname(fileURLToPath(import.meta.url)), '../..');
const folder = mkdtempSync(join(tmpdir(), 'weft-hearing-'));
let server, openai, model, wav, data;

before(async () => {
	const make = `import sys
sys.argv = ["", "", "${join(tree, 'models/weft-tiny')}"]
sys.path.insert(0, "${join(tree, 'tests/server')}")
import test_hearing as t
t.make_model("${folder}")
open("${folder}/t.jinja", "w").write(t.TEMPLATE)
sys.stdout.buffer.write(t.wav(1.0, 440))`;
	wav = execFileSync('/usr/bin/python3', ['-c', make], { env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' }, maxBuffer: 1 << 24 });
	data = wav.toString('base64');
	server = await serve(folder, '--chat-template', join(folder, 't.jinja'));
	openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: PATIENCE });
	model = (await openai.models.list()).data[0].id;
});
after(async () => {
	await server.stop();
	rmSync(folder, { recursive: true });
});

const message = (text) => ({ role: 'user', content: [{ type: 'input_audio', input_audio: { data, format: 'wav' } }, { type: 'text', text }] });

test('chats', async () => {
	const body = { model, temperature: 0, max_tokens: 8, messages: [message('What is it?')] };
	const whole = await openai.chat.completions.create(body);
	assert.ok(whole.usage.prompt_tokens > 25, `${whole.usage.prompt_tokens}`);
	let text = '';
	for await (const chunk of await openai.chat.completions.create({ ...body, stream: true })) text += chunk.choices[0]?.delta.content ?? '';
	assert.equal(text, whole.choices[0].message.content);
	const r = await openai.responses.create({ model, temperature: 0, max_output_tokens: 16, input: [{ role: 'user', content: [
		{ type: 'input_audio', input_audio: { data, format: 'wav' } }, { type: 'input_text', text: 'What is it?' }] }] });
	assert.equal(r.usage.input_tokens, whole.usage.prompt_tokens);
	await assert.rejects(openai.chat.completions.create({ ...body, messages: [{ role: 'user', content: [
		{ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }] }] }), (e) => e.status === 400 && e.code === 'invalid_sound');
});

test('transcriptions', async () => {
	const ask = async (more = {}) => openai.audio.transcriptions.create({ model, file: await toFile(wav, 'a.wav'), max_completion_tokens: 8, ...more });
	const { text, usage } = await ask();
	assert.equal(typeof text, 'string');
	assert.equal(usage.input_token_details.audio_tokens, 25);
	assert.equal(await ask({ response_format: 'text' }), `${text}\n`);
	assert.deepEqual(await ask({ response_format: 'verbose_json' }).then((t) => [t.text, t.duration]), [text, 1]);
	let told = '', done;
	for await (const e of await ask({ stream: true })) {
		if (e.type === 'transcript.text.delta') told += e.delta;
		else done = e;
	}
	assert.deepEqual([told, done.type, done.text], [text, 'transcript.text.done', text]);
	await assert.rejects(ask({ response_format: 'srt' }), (e) => e.status === 400 && e.param === 'response_format');
	await assert.rejects(ask({ file: await toFile(Buffer.from('no sound'), 'a.wav') }), (e) => e.status === 400 && e.code === 'invalid_sound');
});
