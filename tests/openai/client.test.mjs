// The official OpenAI client against a running server.  What the model says is not
// judged: only that every way of asking for the same answer gives the same answer,
// and that fields, limits and errors are what the client expects.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { PATIENCE, serve } from '../clients/server.mjs';

let server, url, client, model;

const until = (what, condition) => server.until(what, condition);
const health = () => server.health();

before(async () => {
	server = await serve('--max-body', '1M', '--api-key', 'sesame', '--queue', '128');
	url = server.url;
	client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'sesame', maxRetries: 0, timeout: PATIENCE });
	model = (await client.models.list()).data[0].id;
});

after(() => server.stop());

const say = (content, more = {}) => ({ model, messages: [{ role: 'user', content }], max_tokens: 24, ...more });

async function collect(body) {
	const stream = await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
	const out = { content: '', thinking: '', logprobs: [], chunks: 0 };
	for await (const chunk of stream) {
		out.chunks++;
		assert.equal(chunk.object, 'chat.completion.chunk');
		assert.equal(out.id ??= chunk.id, chunk.id);
		if (chunk.usage) out.usage = chunk.usage;
		for (const c of chunk.choices) {
			if (out.chunks === 1) assert.equal(c.delta.role, 'assistant');
			out.content += c.delta.content ?? '';
			out.thinking += c.delta.reasoning_content ?? '';
			if (c.logprobs) out.logprobs.push(...c.logprobs.content);
			if (c.finish_reason) {
				assert.equal(out.finish, undefined);
				out.finish = c.finish_reason;
			}
		}
	}
	return out;
}

// What an error must look like to the client.
async function refused(promise, status, code, words, type) {
	await assert.rejects(promise, (e) => {
		assert.ok(e instanceof OpenAI.APIError, `${e}`);
		assert.equal(e.status, status, e.message);
		if (type) assert.ok(e instanceof type, e.constructor.name);
		assert.equal(e.code, code);
		assert.match(e.message, words);
		return true;
	});
}

test('models', async () => {
	assert.equal((await client.models.retrieve(model)).id, model);
	await refused(client.models.retrieve('no-such-model'), 404, 'model_not_found', /no-such-model/, OpenAI.NotFoundError);
});

test('chat', async () => {
	const r = await client.chat.completions.create(say('What is the capital of France?', { temperature: 0 }));
	assert.equal(r.object, 'chat.completion');
	assert.equal(r.model, model);
	assert.match(r.id, /^chatcmpl-\w{22}$/);
	assert.equal(r.choices[0].message.role, 'assistant');
	assert.equal(typeof r.choices[0].message.content, 'string');
	assert.ok(['stop', 'length'].includes(r.choices[0].finish_reason));
	assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
	assert.ok(r._request_id);
});

test('a stream is the same answer', async () => {
	for (const more of [{ temperature: 0 }, { temperature: 1, seed: 7 }]) {
		const body = say('Tell me about the sea.', more);
		const whole = await client.chat.completions.create(body);
		const parts = await collect(body);
		assert.equal(parts.content, whole.choices[0].message.content);
		assert.equal(parts.finish, whole.choices[0].finish_reason);
		assert.equal(parts.usage.completion_tokens, whole.usage.completion_tokens);
		assert.ok(parts.chunks >= 4);
	}
});

test('the stream helper of the client', async () => {
	const body = say('Name three colours.', { temperature: 0 });
	const runner = client.chat.completions.stream(body);
	const text = await runner.finalContent();
	assert.equal(text, (await client.chat.completions.create(body)).choices[0].message.content);
});

test('logprobs', async () => {
	const body = say('Count to five.', { temperature: 0, logprobs: true, top_logprobs: 3, max_tokens: 8 });
	const whole = await client.chat.completions.create(body);
	const content = whole.choices[0].logprobs.content;
	assert.ok(content.length > 0 && content.length <= 8);
	for (const t of content) {
		assert.ok(t.logprob <= 0);
		assert.equal(t.top_logprobs.length, 3);
		assert.equal(t.top_logprobs[0].token, t.token); // greedy
		assert.equal(t.top_logprobs[0].logprob, t.logprob);
		assert.ok(t.top_logprobs[1].logprob <= t.logprob);
		assert.equal(Buffer.from(t.bytes).toString('utf8'), t.token);
	}
	assert.equal(Buffer.concat(content.map((t) => Buffer.from(t.bytes))).toString('utf8').slice(0, whole.choices[0].message.content.length),
		whole.choices[0].message.content);
	assert.deepEqual((await collect(body)).logprobs, content);
});

test('stop', async () => {
	const body = say('Write a sentence about a dog and a cat.', { temperature: 0, max_tokens: 32, ignore_eos: true });
	const text = (await client.chat.completions.create(body)).choices[0].message.content;
	assert.ok(text.length > 12, text);
	for (const stop of [text.slice(5, 9), [text.slice(6, 7), 'never said \u{1f40b}']]) {
		const first = Math.min(...[stop].flat().map((s) => text.indexOf(s)).filter((i) => i >= 0));
		const r = await client.chat.completions.create({ ...body, stop });
		assert.equal(r.choices[0].message.content, text.slice(0, first));
		assert.equal(r.choices[0].finish_reason, 'stop');
		assert.equal((await collect({ ...body, stop })).content, text.slice(0, first));
	}
});

test('seed', async () => {
	const ask = async (seed) => (await client.chat.completions.create(say('Tell me a story.', { temperature: 2, seed, ignore_eos: true })))
		.choices[0].message.content;
	const [a, b] = [await ask(1), await ask(1)];
	assert.equal(a, b);
	assert.equal(new Set([a, await ask(2), await ask(3)]).size, 3);
});

test('n', async () => {
	const r = await client.chat.completions.create(say('Tell me a story.', { temperature: 2, seed: 1, n: 3, ignore_eos: true }));
	assert.deepEqual(r.choices.map((c) => c.index), [0, 1, 2]);
	assert.equal(new Set(r.choices.map((c) => c.message.content)).size, 3);
	const one = await client.chat.completions.create(say('Tell me a story.', { temperature: 2, seed: 1, ignore_eos: true }));
	assert.equal(r.choices[0].message.content, one.choices[0].message.content);
});

test('max_tokens, logit_bias, min_tokens, ignore_eos', async () => {
	for (const field of ['max_tokens', 'max_completion_tokens']) {
		const r = await client.chat.completions.create(say('Go on and on.', { max_tokens: undefined, [field]: 3, ignore_eos: true }));
		assert.equal(r.usage.completion_tokens, 3);
		assert.equal(r.choices[0].finish_reason, 'length');
	}
	// A token that is all but certain after a bias of 100.
	const r = await client.chat.completions.create(say('Hello', { temperature: 0, max_tokens: 2, logit_bias: { 65: 100 }, logprobs: true }));
	const tokens = r.choices[0].logprobs.content.map((t) => t.token);
	assert.equal(tokens.length, 2);
	assert.equal(tokens[0], tokens[1]);
});

test('the second ask finds the prompt in the cache', async () => {
	const body = say(`Unheard of before: ${'words and more words, '.repeat(20)}and then?`, { temperature: 0 });
	const first = await client.chat.completions.create(body);
	const second = await client.chat.completions.create(body);
	assert.equal(first.usage.prompt_tokens, second.usage.prompt_tokens);
	assert.ok(first.usage.prompt_tokens_details.cached_tokens < 30);
	// From the place before the answer's header: nearer ones are not kept.
	assert.ok(second.usage.prompt_tokens_details.cached_tokens >= second.usage.prompt_tokens - 8, JSON.stringify(second.usage));
	assert.equal(second.choices[0].message.content, first.choices[0].message.content);
	// And a conversation that goes on finds most of what was said.
	const third = await client.chat.completions.create({ ...body, messages: [...body.messages,
		{ role: 'assistant', content: first.choices[0].message.content }, { role: 'user', content: 'Go on.' }] });
	assert.ok(third.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens * 0.8,
		JSON.stringify(third.usage));
});

test('tools and their history', async () => {
	const tools = [{ type: 'function', function: { name: 'weather', description: 'Weather of a city',
		parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }];
	const r = await client.chat.completions.create(say('How is the weather in Rome?', { tools, temperature: 0, max_tokens: 48 }));
	const m = r.choices[0].message;
	for (const call of m.tool_calls ?? []) {
		assert.match(call.id, /^call_\w{22}$/);
		assert.equal(r.choices[0].finish_reason, 'tool_calls');
		JSON.parse(call.function.arguments);
	}
	const bare = await client.chat.completions.create(say('How is the weather in Rome?', { temperature: 0 }));
	assert.ok(r.usage.prompt_tokens > bare.usage.prompt_tokens + 20);
	await client.chat.completions.create({ model, tools, max_tokens: 8, messages: [
		{ role: 'user', content: 'How is the weather in Rome?' },
		{ role: 'assistant', content: null, tool_calls: [
			{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city": "Rome"}' } }] },
		{ role: 'tool', tool_call_id: 'call_1', content: 'sunny' }] });
});

test('a call that is demanded, in a stream', async () => {
	// Tools that the bundled model was trained on: it is too small for the form of others.
	const tools = [['get_weather', 'city'], ['search', 'query']].map(([name, key]) => ({ type: 'function', function: { name,
		description: 'Get the weather of a city.', parameters: { type: 'object', properties: { [key]: { type: 'string' } }, required: [key] } } }));
	for (const tool_choice of ['required', { type: 'function', function: { name: 'get_weather' } }]) {
		const body = say('What is the weather in Rome?', { tools, tool_choice, temperature: 0, max_tokens: 60, parallel_tool_calls: false });
		const whole = (await client.chat.completions.create(body)).choices[0];
		assert.equal(whole.finish_reason, 'tool_calls');
		assert.equal(whole.message.tool_calls.length, 1);
		const call = whole.message.tool_calls[0].function;
		if (tool_choice !== 'required') assert.equal(call.name, 'get_weather');
		JSON.parse(call.arguments);
		const final = (await client.chat.completions.stream(body).finalChatCompletion()).choices[0];
		assert.deepEqual({ ...final.message.tool_calls[0].function, parsed_arguments: undefined }, { ...call, parsed_arguments: undefined });
	}
});

test('responses', async () => {
	const ask = (input, more = {}) => ({ model, input, max_output_tokens: 24, temperature: 0, ...more });
	const r = await client.responses.create(ask('What is the capital of France?', { instructions: 'Be brief.' }));
	assert.equal(r.object, 'response');
	assert.ok(r.output_text.length > 0);
	const seen = [];
	const stream = client.responses.stream(ask('What is the capital of France?', { instructions: 'Be brief.' }));
	stream.on('response.output_text.delta', (e) => seen.push(e.delta));
	const final = await stream.finalResponse();
	assert.equal(final.output_text, r.output_text);
	assert.equal(seen.join(''), r.output_text);
	// It goes on, and is there until it is deleted.
	const next = await client.responses.create(ask('And of Peru?', { previous_response_id: r.id }));
	assert.ok(next.usage.input_tokens > r.usage.input_tokens);
	assert.equal((await client.responses.retrieve(next.id)).output_text, next.output_text);
	await client.responses.delete(next.id);
	await refused(client.responses.retrieve(next.id), 404, 'response_not_found', /no longer/, OpenAI.NotFoundError);
	await refused(client.responses.create(ask('x', { previous_response_id: next.id })), 404, 'previous_response_not_found', /no longer/);
	// Asked for in the background, it is not waited for.
	assert.equal((await client.responses.create(ask('Hi', { background: true }))).status, 'queued');
});

test('what stands beside responses', async () => {
	const body = { model, input: [{ role: 'user', content: 'Hello' }, { role: 'developer', content: 'Be brief.' }], instructions: 'Answer.' };
	const whole = await client.responses.create({ ...body, max_output_tokens: 4 });
	const counted = await client.responses.inputTokens.count(body);
	assert.deepEqual({ ...counted, _request_id: 0 }, { object: 'response.input_tokens', input_tokens: whole.usage.input_tokens, _request_id: 0 });
	assert.equal((await client.responses.cancel(whole.id)).id, whole.id);
	await refused(client.responses.cancel('resp_none'), 404, 'response_not_found', /resp_none/, OpenAI.NotFoundError);
	await refused(client.responses.compact(body), 404, 'unsupported', /compacts/, OpenAI.NotFoundError);
});

test('responses that call and think', async () => {
	const tools = [{ type: 'function', name: 'get_weather', strict: false, description: 'Get the weather of a city.',
		parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }];
	const body = { model, input: [{ role: 'user', content: 'What is the weather in Rome?' }], tools, tool_choice: 'required',
		temperature: 0, max_output_tokens: 120, reasoning: { effort: 'low' } };
	const r = await client.responses.create(body);
	const call = r.output.find((o) => o.type === 'function_call');
	assert.equal(call.name, 'get_weather');
	JSON.parse(call.arguments);
	const final = await client.responses.stream(body).finalResponse();
	assert.equal(final.output.find((o) => o.type === 'function_call').arguments, call.arguments);
	assert.deepEqual(final.output.map((o) => o.type), r.output.map((o) => o.type));
	const end = await client.responses.create({ ...body, tool_choice: 'auto', input: [...body.input, ...r.output,
		{ type: 'function_call_output', call_id: call.call_id, output: 'sunny' }] });
	assert.ok(end.output.length >= 1);
	const controller = new AbortController();
	const stream = await client.responses.create({ model, input: 'Go on and on.', max_output_tokens: 3000, ignore_eos: true, stream: true },
		{ signal: controller.signal });
	let events = 0;
	for await (const e of stream) if (e && ++events === 6) break;
	await server.idle();
});

test('completions', async () => {
	const body = { model, prompt: 'The capital of France', max_tokens: 12, temperature: 0 };
	const whole = await client.completions.create(body);
	assert.equal(whole.object, 'text_completion');
	let text = '';
	for await (const chunk of await client.completions.create({ ...body, stream: true })) text += chunk.choices[0].text;
	assert.equal(text, whole.choices[0].text);
	const two = await client.completions.create({ ...body, prompt: ['The capital of France', 'One, two'], logprobs: 2 });
	assert.equal(two.choices.length, 2);
	assert.equal(two.choices[0].text, whole.choices[0].text);
	const lp = two.choices[1].logprobs;
	assert.equal(lp.tokens.length, lp.token_logprobs.length);
	assert.ok(Object.keys(lp.top_logprobs[0]).length <= 3);
});

test('answers held to a schema', async () => {
	const schema = { type: 'object', properties: { city: { type: 'string', maxLength: 20 }, size: { enum: ['small', 'large'] } },
		required: ['city', 'size'], additionalProperties: false };
	const format = { type: 'json_schema', json_schema: { name: 'place', strict: true, schema } };
	for (const enable_thinking of [false, true]) {
		const r = await client.chat.completions.create({ ...say('What is the capital of Peru?'), max_tokens: 600, temperature: 1, seed: 5,
			response_format: format, chat_template_kwargs: { enable_thinking } });
		const place = JSON.parse(r.choices[0].message.content);
		assert.deepEqual(Object.keys(place), ['city', 'size']);
		assert.ok([...place.city].length <= 20 && ['small', 'large'].includes(place.size));
		assert.equal(r.choices[0].finish_reason, 'stop');
	}
	const any = await client.chat.completions.create({ ...say('Say something.'), max_tokens: 3, response_format: { type: 'json_object' } });
	assert.equal(any.choices[0].finish_reason, 'length');
	assert.match(any.choices[0].message.content, /^\{/);
});

test('embeddings', async () => {
	const r = await client.embeddings.create({ model, input: ['Lima is in Peru.', 'Go on.'] });   // in base64, as this client asks
	assert.deepEqual(r.data.map((d) => [d.object, d.index]), [['embedding', 0], ['embedding', 1]]);
	const plain = await client.embeddings.create({ model, input: 'Go on.', encoding_format: 'float' });
	assert.deepEqual(Array.from(Float32Array.from(plain.data[0].embedding)), Array.from(r.data[1].embedding));
	assert.ok(Math.abs(r.data[0].embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
	assert.equal(r.usage.total_tokens, r.usage.prompt_tokens);
});

test('errors', async () => {
	const ask = (body, options) => client.chat.completions.create({ ...say('Hello'), ...body }, options);
	await refused(ask({ model: 'gpt-4o' }), 404, 'model_not_found', new RegExp(`gpt-4o.*${model}`), OpenAI.NotFoundError);
	await refused(ask({ temperature: 'hot' }), 400, 'invalid_type', /temperature.*number.*"hot"/, OpenAI.BadRequestError);
	await refused(ask({ messages: [] }), 400, 'invalid_value', /messages/, OpenAI.BadRequestError);
	await refused(ask({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { uniqueItems: true } } } }), 400,
		'unsupported_schema', /uniqueItems/);
	await refused(ask({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }] }), 400,
		'unsupported_content', /text only/);
	await refused(ask({ messages: [{ role: 'user', content: 'word '.repeat(50_000) }] }), 400, 'context_length_exceeded', /\d+ tokens.*\d+/);
	await refused(ask({ messages: [{ role: 'user', content: 'x'.repeat(3_000_000) }] }), 413, null, /limit of a body/);
	const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 });
	await refused(stranger.chat.completions.create(say('Hello')), 401, 'invalid_api_key', /API key/, OpenAI.AuthenticationError);
	await refused(client.embeddings.create({ model, input: '' }), 400, 'invalid_prompt', /empty/, OpenAI.BadRequestError);
	await ask({}); // and all is well afterwards
});

test('abort in the middle of a stream', async () => {
	for (let i = 0; i < 5; i++) {
		const stream = await client.chat.completions.create(say('Go on and on.', { stream: true, max_tokens: 2000, ignore_eos: true }));
		let chunks = 0;
		for await (const chunk of stream) {
			if (chunk && ++chunks === 3) break; // the client aborts the request
		}
		await until('the engine is idle', async () => {
			const h = await health();
			return h.running === 0 && h.waiting === 0;
		});
	}
});

test('abort while nothing is sent', async () => {
	const controller = new AbortController();
	const answer = client.chat.completions.create(say('Go on and on.', { max_tokens: 3000, ignore_eos: true }), { signal: controller.signal });
	answer.catch(() => {});
	await until('it runs', async () => (await health()).running === 1);
	controller.abort();
	await assert.rejects(answer, OpenAI.APIUserAbortError);
	await until('the engine is idle', async () => (await health()).running === 0);
});

test('64 at once, each as if alone', async () => {
	const bodies = Array.from({ length: 64 }, (_, i) => say(`Question ${i}: what is ${i} plus ${i * 7 % 10}?`,
		{ max_tokens: 12, ...(i % 3 ? { temperature: 1.2, top_p: 0.9, seed: i } : { temperature: 0 }) }));
	const alone = [];
	for (const body of bodies) alone.push((await client.chat.completions.create(body)).choices[0].message.content);
	const together = await Promise.all(bodies.map(async (body, i) => (i % 2 ? (await collect(body)).content
		: (await client.chat.completions.create(body)).choices[0].message.content)));
	assert.deepEqual(together, alone);
});
