/* test_looks.c - no long work between two looks at the allowance (base/allowance.h), while a request is prepared.
 *
 * The files that loop over a request's bytes, values and messages are compiled a second time for this program, so that
 * each of their basic blocks calls __sanitizer_cov_trace_pc (tests/server/meson.build lists them).  Counted are the
 * blocks from one look to the next; so nothing here depends on the machine's speed.  The largest count may not grow
 * with the request, which is some millions of bytes or values here. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "../fuzz/served.h"
#include "base/allowance.h"
#include "base/buf.h"
#include "server/chat/generate.h"
#include "server/chat/past.h"
#include "server/chat/roles.h"
#include "server/routes.h"

enum {
	BYTES = 4 << 20,
	VALUES = 1 << 20,
	MESSAGES = 30000,
	/* For each byte of a piece 32 blocks: some milliseconds.  A pass over BYTES without looks takes more. */
	BLOCKS_MAX = 32 * ALLOWANCE_PIECE,
};

static uint64_t blocks, since, longest, n_look, leave_at, left_at; /* leave_at: the look at which the client leaves */
static atomic_bool gone;
static const void *longest_from, *longest_to, *last; /* where the looks were */

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	blocks++;
}

static void look(const void *from)
{
	if (blocks - since > longest) {
		longest = blocks - since;
		longest_from = last;
		longest_to = from;
	}
	since = blocks;
	last = from;
	n_look++;
}

bool __real_allowance_spend(uint64_t steps);
bool __wrap_allowance_spend(uint64_t steps);
bool __wrap_allowance_spend(uint64_t steps)
{
	look(__builtin_return_address(0));
	if (n_look == leave_at) {
		atomic_store(&gone, true);
		left_at = blocks;
	}
	return __real_allowance_spend(steps);
}

static void begin(struct allowance *w, size_t n)
{
	longest = n_look = 0;
	since = blocks;
	atomic_store(&gone, false);
	allowance_begin(w, n, &gone);
}

static void end(struct allowance *w, const char *what)
{
	look(__builtin_return_address(0));
	allowance_end();
	allowance_settle(w);
	CHECK(longest < BLOCKS_MAX, "%s: %llu blocks between looks at %p and %p", what, (unsigned long long)longest,
	      longest_from, longest_to);
	printf("%s: at most %llu blocks between two looks\n", what, (unsigned long long)longest);
	fflush(stdout);
}

/* A model whose template has the limits of a server's. */
static const struct served *served(void)
{
	static const char chat[] =
		"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}"
		"{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}";
	static struct served d;
	struct template *t;
	struct err err;

	if (!d.tmpl) {
		d = *fuzz_served();
		CHECK(!template_open(&t, chat, sizeof chat - 1, NULL, &err), "%s", err.msg);
		d.tmpl = t;
		d.ctx_max = 1 << 30;
	}
	return &d;
}

/* As a worker reads a body. */
static void read_as(struct generation *g, const struct buf *b, struct problem *p)
{
	struct json *body = body_parse(b->p, b->n, p);

	if (body)
		g->endpoint->read(g, body, p);
}

static void prepare(const char *what, const struct endpoint *as, struct buf *body)
{
	struct generation *g = generation_new(served(), as);
	struct problem p = { 0 };
	struct allowance w;

	begin(&w, body->n);
	read_as(g, body, &p);
	CHECK(!p.status, "%s: %s", what, p.message);
	end(&w, what);
	generation_free(g);
	buf_reset(body);
}

static void put_many(struct buf *b, const char *text, size_t bytes)
{
	for (size_t n = strlen(text); bytes >= n; bytes -= n)
		buf_puts(b, text);
}

static void put_messages(struct buf *b)
{
	for (int i = 0; i < MESSAGES; i++)
		buf_printf(b, "%s{\"role\":\"%s\",\"content\":\"text %d\"}", i ? "," : "[",
		           i % 2 ? "assistant" : "user", i);
	buf_putc(b, ']');
}

static void test_texts(struct buf *b)
{
	static const char *const text[] = {
		"a", "some words ", "\xC3\xA9\xE4\xB8\xAD", "\\u00e9\\ud83d\\ude00", "\\\\", "\\n", " "
	};

	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		buf_puts(b, "{\"prompt\":\"");
		put_many(b, text[i], BYTES);
		buf_puts(b, "\"}");
		prepare(text[i], &completions_endpoint, b);
	}
	buf_puts(b, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
	put_many(b, "words \\\" ", BYTES);
	buf_puts(b, "\"}]}");
	prepare("a message", &chat_endpoint, b);
	buf_puts(b, "{\"prompt\":\"a\"}");
	put_many(b, " ", BYTES);
	prepare("blanks", &completions_endpoint, b);
}

static void test_values(struct buf *b)
{
	buf_puts(b, "{\"prompt\":[1");
	put_many(b, ",1", (size_t)VALUES * 2);
	buf_puts(b, "]}");
	prepare("tokens", &completions_endpoint, b);
	buf_puts(b, "{\"messages\":");
	put_messages(b);
	buf_puts(b, "}");
	prepare("messages", &chat_endpoint, b);
	buf_puts(
		b,
		"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
		"\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[1");
	put_many(b, ",1", (size_t)VALUES * 2);
	buf_puts(b, "]}\"}}]},{\"role\":\"user\",\"content\":\"y\"}]}");
	prepare("arguments", &chat_endpoint, b);
}

/* What happens to messages between a body and a template. */
static void test_messages(struct buf *b)
{
	static const struct roles strict = { .calls = false };
	struct past_context context = { .tools = NULL };
	struct past past = { 0 };
	struct turns *turns = turns_new(1 << 20);
	struct json *messages, *whole;
	struct allowance w;

	put_messages(b);
	whole = json_parse(b->p, b->n, 0, NULL);
	begin(&w, b->n);
	messages = roles_fit(&strict, whole);
	end(&w, "roles_fit");
	begin(&w, b->n);
	past_read(&past, turns, REPLAY_ALL, &context, messages);
	end(&w, "past_read");
	past_fini(&past);
	turns_free(turns);
	begin(&w, b->n);
	json_free(messages);
	json_free(whole);
	end(&w, "json_free");
	buf_reset(b);
}

/* The client leaves in the midst, at many places: what is done after it is little, however much is left. */
static void test_leaving(struct buf *b)
{
	enum { LEAVINGS = 40, AFTER_MAX = 2 * BLOCKS_MAX };
	uint64_t looks = 0, most = 0;

	buf_puts(b, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,"
	            "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
	            "\"{\\\"a\\\":[1");
	put_many(b, ",1", VALUES / 4);
	buf_puts(b, "]}\"}}]}");
	for (int i = 0; i < MESSAGES / 4; i++)
		buf_printf(b, ",{\"role\":\"user\",\"content\":\"text %d\"}", i);
	buf_puts(b, "]}");
	for (int i = 0; i <= LEAVINGS; i++) {
		struct generation *g = generation_new(served(), &chat_endpoint);
		struct problem p = { 0 };
		struct allowance w;

		leave_at = looks * (uint64_t)i / (LEAVINGS + 1);
		begin(&w, b->n);
		read_as(g, b, &p);
		looks = i ? looks : n_look;
		if (leave_at && blocks - left_at > most)
			most = blocks - left_at;
		CHECK(!leave_at == !allowance_why(), "it left at look %llu of %llu: %s", (unsigned long long)leave_at,
		      (unsigned long long)looks, allowance_why());
		allowance_end();
		generation_free(g);
		allowance_settle(&w);
	}
	leave_at = 0;
	CHECK(most < AFTER_MAX, "%llu blocks after the client had left", (unsigned long long)most);
	printf("leaving: at most %llu blocks of %llu looks' work\n", (unsigned long long)most,
	       (unsigned long long)looks);
	buf_reset(b);
}

static void test_tokens(void)
{
	struct tokens t = { 0 };
	struct allowance w;
	struct buf text;

	buf_init(&text);
	for (int i = 0; i < VALUES; i++)
		tokens_put(&t, 'a' + i % 26);
	begin(&w, 0);
	tokenizer_decode(served()->tokenizer, t.id, t.n, true, &text);
	end(&w, "tokenizer_decode");
	CHECK(text.n == VALUES, "%zu bytes", text.n);
	tokens_fini(&t);
	buf_fini(&text);
}

/* Letters and all their pairs: of a long piece every two symbols are a candidate. */
static void put_pairs(struct buf *b, const char *type, bool scores)
{
	buf_printf(b, "{\"added_tokens\":[],\"model\":{\"type\":\"%s\",\"unk_id\":0,\"vocab\":%s", type,
	           scores ? "[[\"?\",0]" : "{\"?\":0");
	for (int i = 0; i < 26; i++)
		buf_printf(b, scores ? ",[\"%c\",-999.5]" : ",\"%c\":%d", 'a' + i, i + 1);
	for (int i = 0; i < 26 * 26; i++)
		buf_printf(b, scores ? ",[\"%c%c\",-%d.5]" : ",\"%c%c\":%d", 'a' + i / 26, 'a' + i % 26, i + 27);
	buf_puts(b, scores ? "]" : "}");
	for (int i = 0; i < 26 * 26 && !scores; i++)
		buf_printf(b, "%s\"%c %c\"", i ? "," : ",\"merges\":[", 'a' + i / 26, 'a' + i % 26);
	buf_puts(b, scores ? "}}" : "]}}");
}

/* One piece of megabytes in each kind of tokenizer that works on it as a whole. */
static void test_pieces(struct buf *b)
{
	static const char *const type[] = { "BPE", "Unigram", "ScoredBPE" };
	struct buf text;
	uint32_t x = 1;

	buf_init(&text);
	for (int i = 0; i < BYTES; i++)
		buf_putc(&text, (char)('a' + (x = x * 1664525 + 1013904223) / 165191050));
	for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
		struct tokens t = { 0 };
		struct tokenizer *one;
		struct allowance w;
		struct err err;

		put_pairs(b, type[i], i > 0);
		CHECK(!tokenizer_open(&one, b->p, b->n, &err), "%s", err.msg);
		begin(&w, text.n);
		CHECK(!tokenizer_encode(one, text.p, text.n, 0, &t, &err), "%s", err.msg);
		end(&w, type[i]);
		CHECK(t.n > BYTES / 2 && t.n < BYTES, "%s: %zu tokens", type[i], t.n);
		tokens_fini(&t);
		tokenizer_close(one);
		buf_reset(b);
	}
	buf_fini(&text);
}

int main(void)
{
	struct buf b;

	buf_init(&b);
	test_texts(&b);
	test_values(&b);
	test_messages(&b);
	test_leaving(&b);
	test_tokens();
	test_pieces(&b);
	buf_fini(&b);
	return 0;
}
