// OpenAI's client: responses in the background, their streams from any event on, and conversations.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { PATIENCE, serve } from './server.mjs';

let server, openai;
before(async () => {
	server = await serve();
	openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: PATIENCE });
});
after(() => server.stop());

const ask = { model: 'weft-tiny', temperature: 0, max_output_tokens: 24, input: 'What is the weather in Lima?' };
const ended = (id) => server.until('it has ended', async () => {
	const r = await openai.responses.retrieve(id);
	return r.status !== 'queued' && r.status !== 'in_progress' && r;
});

test('in the background', async () => {
	const plain = await openai.responses.create(ask);
	const first = await openai.responses.create({ ...ask, background: true });
	assert.equal(first.status, 'queued');
	assert.equal((await ended(first.id)).output_text, plain.output_text);
	const long = await openai.responses.create({ ...ask, max_output_tokens: 3000, ignore_eos: true, background: true });
	assert.equal((await openai.responses.cancel(long.id)).status, 'cancelled');
	assert.equal((await openai.responses.retrieve(long.id)).status, 'cancelled');
	await openai.responses.delete(long.id);
	await assert.rejects(openai.responses.retrieve(long.id), { status: 404, code: 'response_not_found' });
});

test('a stream that is left goes on from the event after', async () => {
	const plain = await openai.responses.create(ask);
	const stream = await openai.responses.create({ ...ask, background: true, stream: true });
	let id, text = '', last;
	for await (const e of stream) {
		id ??= e.response.id;
		last = e.sequence_number;
		if (e.type === 'response.output_text.delta') text += e.delta;
		if (text.length > 8) break; // it closes the connection
	}
	for await (const e of await openai.responses.retrieve(id, { stream: true, starting_after: last })) {
		assert.equal(e.sequence_number, ++last);
		if (e.type === 'response.output_text.delta') text += e.delta;
	}
	assert.equal(text, plain.output_text);
});

test('conversations', async () => {
	const { conversations } = openai;
	const c = await conversations.create({ metadata: { topic: 'demo' }, items: [{ role: 'user', content: 'Hello.' }] });
	assert.deepEqual((await conversations.update(c.id, { metadata: { topic: 'other' } })).metadata, { topic: 'other' });
	await openai.responses.create({ ...ask, conversation: c.id });
	await conversations.items.create(c.id, { items: [{ role: 'user', content: 'And then?' }] });
	const roles = [];
	for await (const item of conversations.items.list(c.id, { order: 'asc', limit: 2 })) roles.push(item);
	assert.deepEqual(roles.map((i) => i.role ?? i.type), ['user', 'user', 'assistant', 'user']);
	assert.equal((await conversations.items.retrieve(roles[0].id, { conversation_id: c.id })).content[0].text, 'Hello.');
	assert.equal((await conversations.items.delete(roles[0].id, { conversation_id: c.id })).id, c.id);
	assert.equal((await conversations.items.list(c.id)).data.length, 3);
	assert.equal((await conversations.retrieve(c.id)).metadata.topic, 'other');
	assert.equal((await conversations.delete(c.id)).deleted, true);
	await assert.rejects(conversations.retrieve(c.id), { status: 404 });
});
