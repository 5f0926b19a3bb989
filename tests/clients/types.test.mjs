// Replies as literals of TypeScript, compiled against the types of the official packages: what a decoder that is
// generated from these types may count on is there, and of its type.  Members of our own beside them are allowed.
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { serve } from './server.mjs';

const options = { strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022, lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'],
	module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
const file = join(dirname(fileURLToPath(import.meta.url)), 'replies.ts'); // where the packages are found; it is never written
const head = `import type OpenAI from 'openai';
import type Anthropic from '@anthropic-ai/sdk';
type Plain = string | number | boolean | null | undefined;
// output_text is made by the client itself.  Text without citations has none: strict decoders (the AI SDK) refuse null.
type Open<T> = T extends Plain ? T : T extends (infer E)[] ? Open<E>[] :
	T extends object ? { [K in keyof T as K extends 'output_text' | 'citations' ? never : K]: Open<T[K]> } & { [more: string]: unknown } : T;
// The types of the oldest endpoint leave out where OpenAI's own service says null: the reason of a part that is not the last,
// figures of a token that has none before it.
type Null<T> = T extends Plain ? T | null : T extends (infer E)[] ? (Null<E> | null)[] : { [K in keyof T]: Null<T[K]> | null };
`;

// What the compiler says of [type, value] pairs: { reply: which, type, at, text }.
function complaints(replies) {
	const source = head + replies.map(([type, value], i) => `const reply${i}: Open<${type}> = ${JSON.stringify(value)};\n`).join('');
	const host = ts.createCompilerHost(options);
	const { fileExists, readFile, getSourceFile } = host;
	host.fileExists = (name) => name === file || fileExists.call(host, name);
	host.readFile = (name) => name === file ? source : readFile.call(host, name);
	host.getSourceFile = (name, ...more) => name === file ? ts.createSourceFile(name, source, options.target) : getSourceFile.call(host, name, ...more);
	const program = ts.createProgram([file], options, host);
	const found = [...program.getSyntacticDiagnostics(program.getSourceFile(file)), ...program.getSemanticDiagnostics(program.getSourceFile(file)),
		...program.getGlobalDiagnostics()];
	return found.map((d) => {
		const reply = d.file ? d.file.getLineAndCharacterOfPosition(d.start).line - head.split('\n').length + 1 : -1;
		return { reply, type: replies[reply]?.[0], at: source.slice(d.start, d.start + 60), text: ts.flattenDiagnosticMessageText(d.messageText, '\n') };
	});
}

let server;
before(async () => { server = await serve('--parallel', '4'); });
after(() => server.stop());

async function reply(path, body) {
	const r = await fetch(server.url + path, body && { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
	const text = await r.text();
	assert.equal(r.status, 200, text);
	if (!r.headers.get('content-type').startsWith('text/event-stream')) return JSON.parse(text);
	return text.split('\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)));
}

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const messages = [{ role: 'user', content: 'What is the weather in Lima?' }];
const tool = { name: 'get_weather', description: 'Get the weather.' };
const chats = [{}, { n: 2, logprobs: true, top_logprobs: 2 }, { reasoning_effort: 'high' }, { stop: ['a'] },
	{ tools: [{ type: 'function', function: { ...tool, parameters } }], tool_choice: 'required' },
	{ tools: [{ type: 'custom', custom: { name: 'patch' } }], tool_choice: 'required' },
	{ response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true, schema: parameters } } }];
const responses = [{}, { reasoning: { effort: 'high', summary: 'auto' } }, { top_logprobs: 2, include: ['message.output_text.logprobs'] },
	{ tools: [{ type: 'function', ...tool, parameters, strict: true }], tool_choice: 'required' },
	{ tools: [{ type: 'custom', name: 'patch' }, { type: 'web_search' }], tool_choice: 'required' },
	{ text: { format: { type: 'json_schema', name: 'x', strict: true, schema: parameters } } }];
const turns = [{}, { thinking: { type: 'enabled', budget_tokens: 1024 } }, { tools: [{ ...tool, input_schema: parameters }], tool_choice: { type: 'any' } },
	{ stop_sequences: ['a'] }];

// Each body whole and as a stream.
async function both(path, common, mores, whole, events) {
	const out = [];
	for (const more of mores) {
		out.push([whole, await reply(path, { ...common, ...more })]);
		out.push([`${events}[]`, await reply(path, { ...common, ...more, stream: true })]);
	}
	return out;
}

test('replies are of the types that the packages declare', async () => {
	const { data: [model] } = await reply('/v1/models'), talk = await reply('/v1/conversations', { items: [{ role: 'user', content: 'x' }] });
	const replies = [
		['OpenAI.Model', model],
		...await both('/v1/chat/completions', { messages, max_completion_tokens: 40, temperature: 0 }, chats, 'OpenAI.ChatCompletion', 'OpenAI.ChatCompletionChunk'),
		['OpenAI.ChatCompletionChunk[]', await reply('/v1/chat/completions', { messages, max_tokens: 4, stream: true, stream_options: { include_usage: true } })],
		...await both('/v1/completions', { prompt: 'Once', max_tokens: 4, temperature: 0 }, [{}, { logprobs: 2, echo: true }],
			'Null<OpenAI.Completion>', 'Null<OpenAI.Completion>'),
		...await both('/v1/responses', { input: 'What is the weather in Lima?', max_output_tokens: 40, temperature: 0 }, responses,
			'OpenAI.Responses.Response', 'OpenAI.Responses.ResponseStreamEvent'),
		['OpenAI.Responses.InputTokenCountResponse', await reply('/v1/responses/input_tokens', { input: 'x' })],
		['OpenAI.Responses.Response', await reply('/v1/responses', { input: 'x', background: true, max_output_tokens: 1 })],
		['OpenAI.Responses.ResponseStreamEvent[]', await reply('/v1/responses', { input: 'x', background: true, stream: true, max_output_tokens: 4 })],
		['OpenAI.Conversations.Conversation', talk],
		['OpenAI.Responses.Response', await reply('/v1/responses', { input: 'x', conversation: talk.id, max_output_tokens: 1 })],
		['OpenAI.Conversations.ConversationItemList', await reply(`/v1/conversations/${talk.id}/items`)],
		...await both('/v1/messages', { model: model.id, messages, max_tokens: 40, temperature: 0 }, turns, 'Anthropic.Message', 'Anthropic.RawMessageStreamEvent'),
		['Anthropic.MessageTokensCount', await reply('/v1/messages/count_tokens', { model: model.id, messages })],
	];
	// The compiler sees what is missing or of another type: each of these, and nothing else.
	const good = replies.find(([type]) => type === 'OpenAI.Responses.Response')[1];
	const wrong = [{ output: undefined }, { output: [{ type: 'message' }] }, { usage: { ...good.usage, input_tokens_details: {} } }, { id: 5 }]
		.map((change) => ['OpenAI.Responses.Response', { ...good, ...change }]);
	const said = complaints([...replies, ...wrong]);
	assert.deepEqual(said.filter((c) => c.reply < replies.length), []);
	assert.deepEqual(said.map((c) => c.reply - replies.length), wrong.map((_, i) => i));
});
