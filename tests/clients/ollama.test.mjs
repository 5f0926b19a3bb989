// ollama's official client against a running server: the one model that is served is what it finds.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Ollama } from 'ollama';
import { serve } from './server.mjs';

let server, client, model;

before(async () => {
	server = await serve();
	client = new Ollama({ host: server.url });
	model = (await client.list()).models[0].name;
});

after(() => server.stop());

const ask = (content, more = {}) => ({ model, messages: [{ role: 'user', content }], options: { temperature: 0, num_predict: 40 }, ...more });

test('what is there', async () => {
	const about = await client.show({ model });
	assert.ok(about.capabilities.includes('completion') && about.capabilities.includes('tools'));
	assert.equal((await client.ps()).models[0].name, model);
	assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

test('a chat, and the same as a stream', async () => {
	const whole = await client.chat(ask('What is the capital of France?', { think: false }));
	assert.ok(whole.message.content.length > 0 && whole.done && whole.eval_count > 0);
	let text = '', last;
	for await (const part of await client.chat(ask('What is the capital of France?', { think: false, stream: true }))) {
		text += part.message.content;
		last = part;
	}
	assert.equal(text, whole.message.content);
	assert.equal(last.eval_count, whole.eval_count);
	const named = await client.chat({ ...ask('What is the capital of France?', { think: false }), model: `${model}:latest` });
	assert.equal(named.message.content, text);
});

test('thinking', async () => {
	const r = await client.chat(ask('What is 3 + 4?', { think: 'low', options: { temperature: 0, num_predict: 200 } }));
	assert.ok(r.message.thinking.length > 0);
	assert.ok(!r.message.content.includes('think>'));
});

test('tools and their results', async () => {
	const tools = [{ type: 'function', function: { name: 'now', description: 'The time.', parameters: { type: 'object', properties: {} } } }];
	const r = await client.chat(ask('What time is it?', { tools, think: false }));
	for (const call of r.message.tool_calls ?? []) assert.equal(typeof call.function.arguments, 'object');
	const messages = [{ role: 'user', content: 'What time is it?' },
		{ role: 'assistant', content: '', tool_calls: [{ function: { name: 'now', arguments: {} } }] },
		{ role: 'tool', tool_name: 'now', content: 'noon' }];
	assert.ok((await client.chat({ ...ask(''), messages, tools, think: false })).done);
});

test('a schema', async () => {
	const format = { type: 'object', properties: { city: { type: 'string', maxLength: 20 } }, required: ['city'], additionalProperties: false };
	const r = await client.chat(ask('Name a city.', { format, think: false, options: { temperature: 0, num_predict: 100 } }));
	assert.deepEqual(Object.keys(JSON.parse(r.message.content)), ['city']);
});

test('a prompt goes on', async () => {
	const r = await client.generate({ model, prompt: 'Once upon', raw: true, options: { num_predict: 5, temperature: 0 } });
	assert.ok(r.done && r.eval_count <= 5);
	assert.ok((await client.generate({ model, prompt: 'Hello', system: 'Be brief.', think: false, options: { num_predict: 8 } })).done);
});

test('embeddings', async () => {
	const { embeddings } = await client.embed({ model, input: ['Lima is in Peru.', 'Go on.'] });
	const alone = await client.embed({ model: `${model}:latest`, input: 'Go on.', keep_alive: '5m', options: { num_ctx: 4096 } });
	assert.equal(embeddings.length, 2);
	assert.deepEqual(alone.embeddings, [embeddings[1]]);
	assert.ok(alone.prompt_eval_count > 0);
	assert.deepEqual((await client.embeddings({ model, prompt: 'Go on.' })).embedding, embeddings[1]);
});

test('a request that asks nothing loads the model', async () => {
	for (const input of ['', []]) assert.deepEqual((await client.embed({ model, input })).embeddings, []);
	assert.equal((await client.generate({ model, prompt: '' })).done_reason, 'load');
});

test('errors', async () => {
	await assert.rejects(client.chat({ ...ask('x'), model: 'llama3' }), /llama3.*is not served/);
	await assert.rejects(client.embed({ model, input: 5 }), /input/);
	await assert.rejects(client.pull({ model }), /not supported/);
});
