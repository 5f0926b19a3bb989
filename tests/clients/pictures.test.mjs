// One picture by every official client and every API, before the bundled model that sees: each gets the same answer from the
// same number of tokens, and a picture that a host serves is fetched only where the server may.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { generateText } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { PATIENCE, serve } from './server.mjs';

const tree = join(dirname(fileURLToPath(import.meta.url)), '../..');
const png = readFileSync(join(tree, 'tools/train/eval/stars.png')), base64 = png.toString('base64');
const url = `data:image/png;base64,${base64}`;
const question = 'How many stars are there?';

let server, host, fetched = 0, openai, anthropic, ollama, model, want;

const chat = async (link) => {
	const r = await openai.chat.completions.create({ model, temperature: 0, max_tokens: 24, messages: [{ role: 'user', content: [
		{ type: 'image_url', image_url: { url: link, detail: 'high' } }, { type: 'text', text: question }] }] });
	return { text: r.choices[0].message.content, tokens: r.usage.prompt_tokens };
};

before(async () => {
	host = createServer((_, reply) => { fetched++; reply.end(png); });
	await new Promise((done) => host.listen(0, '127.0.0.1', done));
	server = await serve(join(tree, 'models/weft-tiny-eyes'), '--image-host', `127.0.0.1:${host.address().port}`);
	openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: PATIENCE });
	anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, timeout: PATIENCE });
	ollama = new Ollama({ host: server.url });
	model = (await openai.models.list()).data[0].id;
	want = await chat(url);
	assert.ok(want.text.length > 0 && want.tokens > 16, JSON.stringify(want));
});

after(async () => {
	host.close();
	await server.stop();
});

test('openai: responses', async () => {
	const r = await openai.responses.create({ model, temperature: 0, max_output_tokens: 24, reasoning: { effort: 'none' }, input: [{ role: 'user',
		content: [{ type: 'input_image', image_url: url, detail: 'auto' }, { type: 'input_text', text: question }] }] });
	assert.deepEqual({ text: r.output_text, tokens: r.usage.input_tokens }, want);
});

test('openai: a stream', async () => {
	let text = '';
	for await (const part of await openai.chat.completions.create({ model, temperature: 0, max_tokens: 24, stream: true, messages: [{ role: 'user',
		content: [{ type: 'image_url', image_url: { url } }, { type: 'text', text: question }] }] }))
		text += part.choices[0]?.delta?.content ?? '';
	assert.equal(text, want.text);
});

test('anthropic: messages, and their count', async () => {
	const messages = [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64 } },
		{ type: 'text', text: question }] }];
	const r = await anthropic.messages.create({ model, temperature: 0, max_tokens: 24, messages });
	assert.deepEqual({ text: r.content[0].text, tokens: r.usage.input_tokens + (r.usage.cache_read_input_tokens ?? 0) }, want);
	assert.equal((await anthropic.messages.countTokens({ model, messages })).input_tokens, want.tokens);
});

test('ollama: images', async () => {
	const r = await ollama.chat({ model, think: false, messages: [{ role: 'user', content: question, images: [new Uint8Array(png)] }],
		options: { temperature: 0, num_predict: 24 } });
	assert.deepEqual({ text: r.message.content, tokens: r.prompt_eval_count }, want);
});

test('an agent framework', async () => {
	const provider = createOpenAICompatible({ name: 'weft', baseURL: `${server.url}/v1` });
	const r = await generateText({ model: provider(model), temperature: 0, maxOutputTokens: 24, maxRetries: 0, messages: [{ role: 'user', content: [
		{ type: 'image', image: new Uint8Array(png), mediaType: 'image/png' }, { type: 'text', text: question }] }] });
	assert.deepEqual({ text: r.text, tokens: r.usage.inputTokens }, want);
});

test('a second turn', async () => {
	const first = [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }, { type: 'text', text: question }] }];
	const r = await openai.chat.completions.create({ model, temperature: 0, max_tokens: 24, messages: [...first,
		{ role: 'assistant', content: want.text }, { role: 'user', content: 'What colour are they?' }] });
	assert.ok(r.usage.prompt_tokens_details.cached_tokens > 16, JSON.stringify(r.usage));
});

test('a picture of a host', async () => {
	const link = `http://127.0.0.1:${host.address().port}/stars.png`;
	assert.deepEqual(await chat(link), want);
	const r = await anthropic.messages.create({ model, temperature: 0, max_tokens: 24, messages: [{ role: 'user', content: [
		{ type: 'image', source: { type: 'url', url: link } }, { type: 'text', text: question }] }] });
	assert.equal(r.content[0].text, want.text);
	assert.equal(fetched, 2);
	await assert.rejects(chat('http://127.0.0.1:1/stars.png'), (e) => e.status === 400 && /does not list/.test(e.message));
});
