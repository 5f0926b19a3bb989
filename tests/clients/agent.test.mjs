// An agent framework of the npm ecosystem (the AI SDK) over its OpenAI-compatible
// provider, against a running server: text, streams, thinking, a loop of tool calls,
// errors, retries, abort.  What the model says is not judged.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool, APICallError, RetryError } from 'ai';
import { z } from 'zod';
import { serve } from './server.mjs';

let server, model;

const provider = (url, apiKey = 'sesame') => createOpenAICompatible({ name: 'weft', baseURL: `${url}/v1`, apiKey, includeUsage: true });

before(async () => {
	server = await serve('--api-key', 'sesame', '--queue', '128');
	model = provider(server.url)('default');
});

after(() => server.stop());

const quiet = { maxRetries: 0, temperature: 0, maxOutputTokens: 60 };
const get_weather = (seen) => tool({
	description: 'Get the weather of a city.',
	inputSchema: z.object({ city: z.string() }),
	execute: async ({ city }) => {
		seen.push(city);
		return { temperature: 21, sky: 'sunny' };
	},
});

test('text, and the same as a stream', async () => {
	const body = { ...quiet, model, system: 'Be brief.', prompt: 'What is the capital of France?' };
	const whole = await generateText(body);
	assert.ok(whole.text.length > 0);
	assert.ok(['stop', 'length'].includes(whole.finishReason));
	assert.equal(whole.usage.totalTokens, whole.usage.inputTokens + whole.usage.outputTokens);
	const stream = streamText(body);
	let text = '';
	for await (const delta of stream.textStream) text += delta;
	assert.equal(text, whole.text);
	assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
	assert.equal(await stream.finishReason, whole.finishReason);
});

test('thinking is told apart', async () => {
	const body = { ...quiet, model, prompt: 'Why is the sky blue?', providerOptions: { weft: { reasoningEffort: 'high' } } };
	const whole = await generateText(body);
	assert.ok(whole.reasoningText.length > 0);
	assert.ok(!whole.text.includes('think>'));
	let thought = '';
	for await (const part of streamText(body).fullStream) if (part.type === 'reasoning-delta') thought += part.text;
	assert.equal(thought.trim(), whole.reasoningText.trim());
});

test('a loop of tool calls', async () => {
	for (const ask of [generateText, async (body) => {
		const stream = streamText(body);
		await stream.consumeStream();
		return { steps: await stream.steps };
	}]) {
		const seen = [];
		const r = await ask({ ...quiet, model, prompt: 'What is the weather in Rome?', tools: { get_weather: get_weather(seen) },
			prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? 'auto' : { type: 'tool', toolName: 'get_weather' } }),
			stopWhen: stepCountIs(4) });
		assert.equal(r.steps[0].finishReason, 'tool-calls');
		const call = r.steps[0].toolCalls[0];
		assert.equal(call.toolName, 'get_weather');
		assert.equal(seen[0], call.input.city);
		assert.deepEqual(r.steps[0].toolResults[0].output, { temperature: 21, sky: 'sunny' });
		assert.ok(r.steps.length >= 2);
		// The second step goes on from the first, and finds it in the cache.
		assert.ok(r.steps[1].usage.cachedInputTokens > 20, JSON.stringify(r.steps[1].usage));
	}
});

test('objects of a schema', async () => {
	const structured = createOpenAICompatible({ name: 'weft', baseURL: `${server.url}/v1`, apiKey: 'sesame', supportsStructuredOutputs: true })('default');
	const body = { ...quiet, model: structured, maxOutputTokens: 200, prompt: 'Name a city.', schema: z.object({
		name: z.string().max(20), size: z.enum(['small', 'large']), people: z.number().int().min(1).max(99) }) };
	const { object } = await generateObject(body);      // which checks it
	const stream = streamObject(body);
	let last;
	for await (const part of stream.partialObjectStream) last = part;
	assert.deepEqual(await stream.object, object);
	assert.deepEqual(last, object);
});

test('errors', async () => {
	const bad = { ...quiet, prompt: 'Hello' };
	await assert.rejects(generateText({ ...bad, model: provider(server.url)('gpt-4o') }), (e) => APICallError.isInstance(e)
		&& e.statusCode === 404 && /gpt-4o.*is not served/.test(e.message));
	await assert.rejects(generateText({ ...bad, model: provider(server.url, 'wrong')('default') }), (e) => e.statusCode === 401);
	await assert.rejects(generateText({ ...bad, model, prompt: 'word '.repeat(50_000) }), (e) => e.statusCode === 400
		&& /\d+ tokens.*\d+/.test(e.message) && !e.isRetryable);
	const parts = [];
	for await (const part of streamText({ ...bad, model, topP: 7, onError: () => {} }).fullStream) parts.push(part);
	assert.match(`${parts.find((p) => p.type === 'error').error.message}`, /top_p/);
	await assert.rejects(generateText({ ...bad, model, messages: undefined, prompt: [{ role: 'user', content: [
		{ type: 'image', image: new Uint8Array([137, 80, 78, 71]), mediaType: 'image/png' }] }] }), (e) => /text only/.test(e.message));
});

test('abort', async () => {
	for (let i = 0; i < 3; i++) {
		const controller = new AbortController();
		const stream = streamText({ ...quiet, model, prompt: 'Go on and on.', maxOutputTokens: 3000, abortSignal: controller.signal,
			providerOptions: { weft: { ignore_eos: true } }, onError: () => {} });
		let n = 0;
		for await (const part of stream.fullStream) {
			if (part.type === 'text-delta' && ++n === 3) controller.abort();
			if (part.type === 'abort') break;
		}
		await server.idle();
	}
});

test('it comes again when there is no room', async () => {
	const small = await serve('--parallel', '1', '--queue', '1');
	try {
		const busy = new AbortController();
		const hold = () => fetch(`${small.url}/v1/completions`, { method: 'POST', signal: busy.signal, headers: { 'content-type': 'application/json' },
			body: JSON.stringify({ prompt: 'On and on', max_tokens: 3500, ignore_eos: true }) }).catch(() => {});
		const held = [hold()];
		await small.until('one runs', async () => (await small.health()).running === 1);
		held.push(hold());
		await small.until('one waits', async () => (await small.health()).waiting === 1);
		const m = provider(small.url)('default');
		await assert.rejects(generateText({ ...quiet, model: m, prompt: 'Hello' }), (e) => (RetryError.isInstance(e) ? e.lastError : e).isRetryable);
		const answer = generateText({ ...quiet, model: m, prompt: 'Hello', maxRetries: 5 });
		busy.abort();
		assert.ok((await answer).text.length >= 0);
		await Promise.all(held);
	} finally {
		await small.stop();
	}
});

test('64 at once, each as if alone', async () => {
	const one = async (i) => {
		const body = { ...quiet, model, prompt: `Question ${i}: what is ${i} plus ${i * 7 % 10}?`, maxOutputTokens: 12,
			...(i % 3 ? { temperature: 1, topP: 0.9, seed: i } : {}) };
		return i % 2 ? (await generateText(body)).text : await streamText(body).text;
	};
	const alone = [];
	for (let i = 0; i < 64; i++) alone.push(await one(i));
	assert.deepEqual(await Promise.all(alone.map((_, i) => one(i))), alone);
});
