// One server with a chat model, an encoder and a reranker, by the clients of OpenAI, Cohere, Jina and ollama.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { embedMany } from 'ai';
import { CohereClientV2 } from 'cohere-ai';
import { createJina } from 'jina-ai-provider';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { PATIENCE, serve } from './server.mjs';

const tree = join(dirname(fileURLToPath(import.meta.url)), '../..');
const dir = mkdtempSync(join(tmpdir(), 'weft-embeddings-'));
const golden = (name) => `[model]\nalias = ${name}\nmodel = ${join(tree, 'tests/golden/_embed', name, 'hf-bf16')}\n`;
const texts = ['cats', 'hello', 'is it'];
let server, openai, cohere;

before(async () => {
	const config = join(dir, 'config');
	writeFileSync(config, `[model]\nmodel = ${join(tree, 'models/weft-tiny')}\n${golden('bert')}${golden('bge_reranker')}`);
	server = await serve('--config', config, '--prompt-cache-dir', join(dir, 'kept'));
	openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: PATIENCE });
	cohere = new CohereClientV2({ environment: server.url, token: 'none' });
});
after(async () => {
	await server.stop();
	rmSync(dir, { recursive: true });
});

const near = (a, b) => {
	assert.equal(a.length, b.length);
	a.forEach((x, i) => assert.ok(Math.abs(x - b[i]) < 1e-6, `${i}: ${x}, ${b[i]}`));
};

test('vectors are the same by every client, while chats run', async () => {
	const asked = { model: 'weft-tiny', temperature: 0, max_tokens: 24, messages: [{ role: 'user', content: 'Is Lima in Peru?' }] };
	const alone = (await openai.chat.completions.create(asked)).choices[0].message.content;
	const chats = Array.from({ length: 4 }, () => openai.chat.completions.create(asked));
	const { data } = await openai.embeddings.create({ model: 'bert', input: texts });
	const want = data.map((d) => d.embedding);
	assert.deepEqual(want.map((v) => v.length), [48, 48, 48]);
	const floats = await openai.embeddings.create({ model: 'bert', input: texts, encoding_format: 'float' });
	floats.data.forEach((d, i) => near(d.embedding, want[i]));
	const r = await cohere.embed({ model: 'bert', texts, inputType: 'search_document', embeddingTypes: ['float', 'ubinary'] });
	r.embeddings.float.forEach((v, i) => near(v, want[i]));
	assert.deepEqual(r.embeddings.ubinary.map((v) => v.length), [6, 6, 6]);
	const jina = createJina({ baseURL: `${server.url}/v1`, apiKey: 'none' });
	const many = await embedMany({ model: jina.textEmbeddingModel('bert'), values: texts });
	many.embeddings.forEach((v, i) => near(v, want[i]));
	const ollama = new Ollama({ host: server.url });
	(await ollama.embed({ model: 'bert', input: texts })).embeddings.forEach((v, i) => near(v, want[i]));
	for (const c of await Promise.all(chats)) assert.equal(c.choices[0].message.content, alone);
});

test('ranks', async () => {
	const documents = ['hello hello', 'cats', 'word'];
	const r = await cohere.rerank({ model: 'bge_reranker', query: 'cats', documents });
	assert.deepEqual(r.results.map((x) => x.index).sort(), [0, 1, 2]);
	const scores = r.results.map((x) => x.relevanceScore);
	assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
	const two = await cohere.rerank({ model: 'bge_reranker', query: 'cats', documents, topN: 2 });
	assert.deepEqual(two.results, r.results.slice(0, 2));
	// With an embedder a score is the cosine of two vectors.
	near([(await cohere.rerank({ model: 'bert', query: 'cats', documents: ['cats'] })).results[0].relevanceScore], [1]);
	// Jina's clients send what its documentation has, by fetch.
	const jina = await fetch(`${server.url}/v1/rerank`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer none' },
		body: JSON.stringify({ model: 'bge_reranker', query: 'cats', documents, top_n: 3, return_documents: true }) });
	assert.deepEqual((await jina.json()).results.map((x) => [x.index, x.document.text]), r.results.map((x) => [x.index, documents[x.index]]));
});

test('what a model cannot do', async () => {
	const messages = [{ role: 'user', content: 'x' }];
	await assert.rejects(openai.chat.completions.create({ model: 'bert', messages }), (e) => e.status === 400 && /writes no text/.test(e.message));
	await assert.rejects(openai.embeddings.create({ model: 'bge_reranker', input: 'x' }), (e) => e.status === 400 && /cannot give a vector/.test(e.message));
	await assert.rejects(cohere.rerank({ model: 'weft-none', query: 'x', documents: ['y'] }), (e) => e.statusCode === 404);
	await assert.rejects(openai.embeddings.create({ model: 'none', input: 'x' }), (e) => e.status === 404);
});
