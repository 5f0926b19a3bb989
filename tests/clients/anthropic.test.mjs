// Anthropic's official client against a running server.  What the model says is not
// judged: only that every way of asking for the same answer gives the same answer,
// and that shapes, limits and errors are what the client expects.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { PATIENCE, serve } from './server.mjs';

let server, client, model;

before(async () => {
	server = await serve('--max-body', '1M', '--api-key', 'sesame', '--queue', '128');
	client = new Anthropic({ baseURL: server.url, apiKey: 'sesame', maxRetries: 0, timeout: PATIENCE });
	for await (const m of client.models.list())
		model = m.id;
	assert.ok(new Date((await client.models.retrieve(model)).created_at) < Date.now() + 1000);
});

after(() => server.stop());

const say = (content, more = {}) => ({ model, max_tokens: 24, messages: [{ role: 'user', content }], ...more });
const weather = { name: 'get_weather', description: 'Get the weather of a city.',
	input_schema: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] } };

// Without what is random.
const bare = ({ id, _request_id, parsed_output, stop_details, ...m }) => ({ ...m, content: m.content.map(({ id: own, ...rest }) => rest) });

async function refused(promise, status, type, words, kind) {
	await assert.rejects(promise, (e) => {
		assert.ok(e instanceof Anthropic.APIError, `${e}`);
		assert.equal(e.status, status, e.message);
		if (kind) assert.ok(e instanceof kind, e.constructor.name);
		assert.equal(e.error.error.type, type);
		assert.match(e.message, words);
		return true;
	});
}

test('plain', async () => {
	const r = await client.messages.create(say('What is the capital of France?', { temperature: 0, system: 'Be brief.' }));
	assert.equal(r.type, 'message');
	assert.equal(r.role, 'assistant');
	assert.match(r.id, /^msg_\w{22}$/);
	assert.equal(r.model, model);
	assert.equal(r.content[0].type, 'text');
	assert.ok(['end_turn', 'max_tokens'].includes(r.stop_reason));
	assert.ok(r.usage.input_tokens > 0 && r.usage.output_tokens > 0);
	assert.match(r._request_id, /^\w{22}$/);
	const again = await client.messages.create(say('What is the capital of France?', { temperature: 0, system: 'Be brief.' }));
	assert.deepEqual(again.content, r.content);
	assert.ok(again.usage.cache_read_input_tokens > 0);
	assert.equal(again.usage.cache_read_input_tokens + again.usage.input_tokens, r.usage.cache_read_input_tokens + r.usage.input_tokens);
});

test('a stream is the same answer', async () => {
	for (const more of [{ temperature: 0 }, { temperature: 1, seed: 7 }, { temperature: 0, thinking: { type: 'enabled', budget_tokens: 1024 }, max_tokens: 80 },
		{ temperature: 0, tools: [weather], max_tokens: 60 }, { temperature: 0, tools: [weather], tool_choice: { type: 'any' }, max_tokens: 60 }]) {
		const body = say('How is the weather in Rome?', more);
		const whole = await client.messages.create(body);
		const stream = client.messages.stream(body);
		const text = [], json = [], kinds = new Set();
		stream.on('text', (t) => text.push(t));
		stream.on('inputJson', (t) => json.push(t));
		stream.on('streamEvent', (e) => kinds.add(e.type));
		const final = await stream.finalMessage();
		const { usage: a, ...left } = bare(final), { usage: b, ...right } = bare(whole);
		assert.deepEqual(left, right);
		assert.equal(a.output_tokens, b.output_tokens);
		assert.equal(text.join(''), whole.content.filter((c) => c.type === 'text').map((c) => c.text).join(''));
		for (const kind of ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop'])
			assert.ok(kinds.has(kind), kind);
		if (more.tool_choice) {
			assert.equal(whole.stop_reason, 'tool_use');
			assert.deepEqual(JSON.parse(json.join('')), whole.content.at(-1).input);
		}
		if (more.thinking) {
			assert.equal(whole.content[0].type, 'thinking');
			assert.ok(whole.content[0].signature);
		}
	}
});

test('a budget of thought', async () => {
	const body = (budget) => say('Why is the sky blue?', { temperature: 0, max_tokens: 60, thinking: { type: 'enabled', budget_tokens: budget } });
	const long = await client.messages.create(body(1024));
	const none = await client.messages.create(body(0));
	assert.equal(long.content[0].type, 'thinking');
	assert.deepEqual(none.content.map((c) => c.type), ['text']);
	const some = await client.messages.create(body(4));
	assert.ok(long.content[0].thinking.startsWith(some.content[0].thinking.slice(0, 4)));
});

test('tools, there and back', async () => {
	const messages = [{ role: 'user', content: 'How is the weather in Rome?' }];
	const ask = { model, max_tokens: 60, temperature: 0, tools: [weather] };
	const r = await client.messages.create({ ...ask, messages, tool_choice: { type: 'tool', name: 'get_weather' } });
	assert.equal(r.stop_reason, 'tool_use');
	const calls = r.content.filter((c) => c.type === 'tool_use');
	assert.equal(calls.length, 1);
	assert.equal(calls[0].name, 'get_weather');
	assert.match(calls[0].id, /^toolu_\w{22}$/);
	messages.push({ role: 'assistant', content: r.content },
		{ role: 'user', content: [{ type: 'tool_result', tool_use_id: calls[0].id, content: [{ type: 'text', text: 'sunny, 25 degrees' }] }] });
	const end = await client.messages.create({ ...ask, messages });
	assert.ok(end.content.length >= 1);
	// The turn that comes back is the one that was computed.
	assert.ok(end.usage.cache_read_input_tokens > 20, JSON.stringify(end.usage));
	const none = await client.messages.create({ ...ask, messages: messages.slice(0, 1), tool_choice: { type: 'none' } });
	assert.ok(none.content.every((c) => c.type === 'text'));
});

test('tokens are counted', async () => {
	const body = say('How is the weather in Rome?', { tools: [weather], system: 'Be brief.' });
	const { max_tokens, ...counted } = body;
	const n = await client.messages.countTokens(counted);
	const r = await client.messages.create(body);
	assert.equal(n.input_tokens, r.usage.input_tokens + r.usage.cache_read_input_tokens);
});

test('an answer of a schema', async () => {
	const schema = { type: 'object', additionalProperties: false, required: ['name', 'size'],
		properties: { name: { type: 'string', maxLength: 20 }, size: { enum: ['small', 'large'] } } };
	const body = say('Name a city.', { temperature: 0, max_tokens: 200, output_config: { format: { type: 'json_schema', schema } } });
	const r = await client.messages.create(body);
	const value = JSON.parse(r.content.at(-1).text);
	assert.deepEqual(Object.keys(value), ['name', 'size']);
	assert.ok(['small', 'large'].includes(value.size));
	assert.deepEqual((await client.messages.stream(body).finalMessage()).content, r.content);
	await refused(client.messages.create({ ...body, output_config: { format: { type: 'json_schema', schema: { uniqueItems: true, type: 'array' } } } }),
		400, 'invalid_request_error', /uniqueItems/);
});

test('stop sequences', async () => {
	const text = (await client.messages.create(say('Write a sentence about a dog.', { temperature: 0, ignore_eos: true }))).content[0].text;
	const stop = text.slice(5, 9);
	const r = await client.messages.create(say('Write a sentence about a dog.', { temperature: 0, ignore_eos: true, stop_sequences: [stop, 'never \u{1f40b}'] }));
	assert.equal(r.content[0].text, text.slice(0, text.indexOf(stop)));
	assert.deepEqual([r.stop_reason, r.stop_sequence], ['stop_sequence', stop]);
});

test('errors', async () => {
	const ask = (more) => client.messages.create(say('Hello', more));
	await refused(ask({ model: 'claude' }), 404, 'not_found_error', new RegExp(`claude.*${model}`), Anthropic.NotFoundError);
	await refused(ask({ temperature: 'hot' }), 400, 'invalid_request_error', /temperature.*found the string/, Anthropic.BadRequestError);
	await refused(ask({ messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: 'http://x' } }] }] }), 400,
		'invalid_request_error', /text only/, Anthropic.BadRequestError);
	await refused(ask({ messages: [{ role: 'user', content: 'word '.repeat(50_000) }] }), 400, 'invalid_request_error', /\d+ tokens.*\d+/);
	// By its header, before it is known which API it is for.
	await refused(ask({ messages: [{ role: 'user', content: 'x'.repeat(3_000_000) }] }), 413, 'invalid_request_error', /body/);
	const stranger = new Anthropic({ baseURL: server.url, apiKey: 'wrong', maxRetries: 0 });
	await refused(stranger.messages.create(say('Hello')), 401, 'authentication_error', /API key/, Anthropic.AuthenticationError);
	await refused(client.messages.stream(say('Hello', { top_p: 7 })).finalMessage(), 400, 'invalid_request_error', /top_p/);
	await ask({});
});

test('abort', async () => {
	for (let i = 0; i < 3; i++) {
		const stream = client.messages.stream(say('Go on and on.', { max_tokens: 3000, ignore_eos: true }));
		let events = 0;
		for await (const event of stream) {
			if (event && ++events === 5) break;
		}
		stream.abort();
		await server.idle();
	}
	const controller = new AbortController();
	const answer = client.messages.create(say('Go on and on.', { max_tokens: 3000, ignore_eos: true }), { signal: controller.signal });
	answer.catch(() => {});
	await server.until('it runs', async () => (await server.health()).running === 1);
	controller.abort();
	await assert.rejects(answer, Anthropic.APIUserAbortError);
	await server.idle();
});

test('a client comes again when there is no room', async () => {
	const small = await serve('--parallel', '1', '--queue', '1');
	try {
		const c = new Anthropic({ baseURL: small.url, apiKey: 'none', maxRetries: 20 });
		const long = () => c.messages.stream(say('Go on and on.', { max_tokens: 3500, ignore_eos: true, temperature: 1 }));
		const held = [long()];
		held[0].done().catch(() => {});
		await small.until('one runs', async () => (await small.health()).running === 1);
		held.push(long());
		held[1].done().catch(() => {});
		await small.until('one waits', async () => (await small.health()).waiting === 1);
		const once = await c.messages.create(say('Hello'), { maxRetries: 0 }).catch((e) => e);
		assert.ok([429, 503].includes(once.status), `${once}`);
		assert.ok(Number(once.headers.get('retry-after')) >= 1);
		const answer = c.messages.create(say('Hello'));
		held.forEach((h) => h.abort());
		assert.equal((await answer).type, 'message');
	} finally {
		await small.stop();
	}
});

test('64 at once, each as if alone', async () => {
	const bodies = Array.from({ length: 64 }, (_, i) => say(`Question ${i}: what is ${i} plus ${i * 7 % 10}?`,
		{ max_tokens: 12, ...(i % 3 ? { temperature: 1, top_p: 0.9, seed: i } : { temperature: 0 }) }));
	const one = async (body, i) => (i % 2 ? await client.messages.stream(body).finalMessage() : await client.messages.create(body)).content;
	const alone = [];
	for (const [i, body] of bodies.entries()) alone.push(await one(body, i));
	assert.deepEqual(await Promise.all(bodies.map(one)), alone);
});
