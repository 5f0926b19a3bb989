/* test_cli.c - the option table, and what `weft bench` says of a row. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "cli/cli.h"
#include "bench/energy.h"

static const struct command *command(const char *name)
{
	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	fail();
	return NULL;
}

/* o: of an earlier call, which is released, or zeros. */
static int parse(const char *name, struct options *o, struct err *err, ...)
{
	char *argv[64];
	int argc = 0;
	va_list ap;

	va_start(ap, err);
	while ((argv[argc] = va_arg(ap, char *)))
		assert_true(++argc < (int)(sizeof argv / sizeof *argv));
	va_end(ap);
	options_fini(o);
	return options_parse(command(name), argc, argv, o, err);
}

static void test_defaults(void **state)
{
	struct options o = { 0 };
	struct err err;

	assert_int_equal(parse("serve", &o, &err, NULL), 0);
	assert_null(o.load.model);
	assert_string_equal(o.serve.host, "127.0.0.1");
	assert_int_equal(o.serve.port, 8080);
	assert_int_equal(o.load.parallel, 8);
	assert_int_equal(o.load.arith, ARITH_FAST);
	assert_int_equal(o.load.cpu.level, cpu_detect());
	assert_true(o.load.prefix_bytes == SIZE_MAX);
	assert_false(o.load.answer.temperature_set);
	assert_int_equal(o.max_tokens, -1);
	assert_int_equal(parse("run", &o, &err, NULL), 0);
	assert_int_equal(o.load.parallel, 1);
	options_fini(&o);
}

static void test_values(void **state)
{
	struct options o = { 0 };
	struct err err;

	assert_int_equal(parse("serve", &o, &err, "a/b", "--port", "0", "-np", "3", "--kv-bytes=2G", "--temp", "0.5",
	                       "-c", "100", "--cpu", "scalar", "--tune", "arith=f32", "--think=off", "--max-body",
	                       "10kB", NULL),
	                 0);
	assert_string_equal(o.load.model, "a/b");
	assert_int_equal(o.serve.port, 0);
	assert_int_equal(o.load.parallel, 3);
	assert_true(o.load.kv_bytes == (size_t)2 << 30);
	assert_true(o.load.answer.temperature == 0.5 && o.load.answer.temperature_set && !o.load.answer.top_p_set);
	assert_int_equal(o.load.ctx_size, 100);
	assert_int_equal(o.load.cpu.level, CPU_SCALAR);
	assert_int_equal(o.load.cpu.attention, CPU_SCALAR);
	assert_int_equal(o.load.arith, ARITH_F32);
	assert_int_equal(o.load.answer.think, THINK_OFF);
	assert_int_equal(o.serve.body_bytes, 10240);
	assert_int_equal(parse("logits", &o, &err, "--split", "1,7,64", "--ids", "x", NULL), 0);
	assert_int_equal(o.logits.split.n, 3);
	assert_int_equal(o.logits.split.v[2], 64);
	options_fini(&o);
	/* Negative values, values that look like options, and words after --. */
	assert_int_equal(parse("run", &o, &err, "-n", "-1", "-p", "--help", "--", "-m", NULL), 0);
	assert_string_equal(o.run.prompt, "--help");
	assert_string_equal(o.load.model, "-m");
	assert_false(o.said.help);
	assert_int_equal(parse("tokenize", &o, &err, "one", NULL), 0);
	assert_null(o.load.model);
	assert_string_equal(o.said.text, "one");
	assert_int_equal(parse("tokenize", &o, &err, "one", "two", NULL), 0);
	assert_string_equal(o.load.model, "one");
	assert_string_equal(o.said.text, "two");
	options_fini(&o);
}

static void refused(const char *name, const char *says, const char *a, const char *b)
{
	struct options o = { 0 };
	struct err err = { 0 };

	assert_int_equal(parse(name, &o, &err, a, b, NULL), E_ARG);
	if (!strstr(err.msg, says))
		fail_msg("'%s' does not say '%s'", err.msg, says);
	options_fini(&o);
}

static void test_refused(void **state)
{
	refused("serve", "--prot; did you mean --port?", "--prot", "1");
	refused("serve", "did you mean --parallel?", "--paralel=2", NULL);
	refused("run", "another command", "--port", "1");
	refused("run", "unknown option --xyzzy", "--xyzzy", NULL);
	refused("serve", "needs a value", "--port", NULL);
	refused("serve", "from 0 to 65535", "--port", "65536");
	refused("serve", "from 0 to 65535", "--port", "80a");
	refused("serve", "from 0 to 65535", "--port", "");
	refused("serve", "from 0 to 65535", "--port", "99999999999999999999");
	refused("serve", "not a size", "--kv-bytes", "-1");
	refused("serve", "not a size", "--kv-bytes", "99999999999G");
	refused("serve", "not a size", "--kv-bytes", "1X");
	refused("serve", "not a number", "--top-p", "nan");
	refused("serve", "not a number", "--top-p", "1.5");
	refused("serve", "on|off", "--think", "maybe");
	refused("serve", "scalar", "--cpu", "sse2");
	refused("logits", "1,7,64", "--split", "1,,2");
	refused("logits", "1,7,64", "--split", "1,0");
	refused("logits", "1,7,64", "--split", "");
	refused("run", "takes no value", "--show-thinking=1", NULL);
	refused("logits", "one argument too many", "a", "b");
	refused("serve", "two models", "--model=a", "b");
}

/* An option that cannot have an effect beside the others is refused; where it has one, and
 * beside --help, it is not. */
/* Options for experiments: serve has them by --tune alone, bench by their own names; a line of a file, a variable and
 * the command line name them in the same way. */
static void test_tune(void **state)
{
	static const struct {
		const char *word, *says;
	} bad[] = {
		{ "--kv-group-size=32", "--kv-group-size is given as --tune kv-group-size=N" },
		{ "--draft-fixed", "--draft-fixed is given as --tune draft-fixed" },
		{ "--tune=port=1", "'port' is not one of the names" },
		{ "--tune=", "'' is not one of the names" },
		{ "--tune=kv-group-size", "needs a value: --tune kv-group-size=N" },
		{ "--tune=kv-group-size=x", "'x' is not a whole number" },
		{ "--tune=draft-fixed=maybe", "neither true nor false" },
	};
	struct options o = { 0 };
	struct err err;
	char path[] = "/tmp/weft-tune-XXXXXX", option[64];
	int fd = mkstemp(path);

	assert_int_equal(parse("serve", &o, &err, "--tune", "ubatch-size=7", "--tune=draft-fixed", "--kv-bits=4",
	                       "--tune", "kv-quant-scheme=uniform", NULL),
	                 0);
	assert_int_equal(o.load.step_rows, 7);
	assert_true(o.load.draft.fixed);
	options_fini(&o);
	assert_int_equal(parse("bench", &o, &err, "--prefill-step-size", "9", NULL), 0);
	assert_int_equal(o.load.step_rows, 9);
	options_fini(&o);
	assert_int_equal(parse("bench", &o, &err, "--tune", "prefill-step-size=10", NULL), 0);
	assert_int_equal(o.load.step_rows, 10);
	options_fini(&o);
	assert_int_equal(parse("tokenize", &o, &err, "--tune", "prefill-step-size=9", NULL), E_ARG);
	options_fini(&o);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(parse("serve", &o, &err, bad[i].word, NULL), E_ARG);
		assert_non_null(strstr(err.msg, bad[i].says));
		options_fini(&o);
	}
	assert_true(fd >= 0 && dprintf(fd, "tune = answer-reserve=5\n") > 0);
	close(fd);
	snprintf(option, sizeof option, "--config=%s", path);
	assert_int_equal(parse("serve", &o, &err, option, NULL), 0);
	assert_int_equal(o.load.answer_reserve, 5);
	options_fini(&o);
	setenv("WEFT_TUNE", "answer-reserve=6", 1);
	assert_int_equal(parse("serve", &o, &err, option, NULL), 0);
	assert_int_equal(o.load.answer_reserve, 6);
	options_fini(&o);
	unsetenv("WEFT_TUNE");
	setenv("WEFT_ANSWER_RESERVE", "7", 1);
	assert_int_equal(parse("serve", &o, &err, NULL), 0);
	assert_int_equal(o.load.answer_reserve, 7);
	options_fini(&o);
	unsetenv("WEFT_ANSWER_RESERVE");
	unlink(path);
	options_fini(&o);
}

static void test_idle(void **state)
{
	static const struct {
		const char *command, *says, *words[8];
		int accepted; /* of words, those after these make the difference */
	} cases[] = {
		{ "serve",
		  "--prompt-cache-disk-bytes does nothing without --prompt-cache-dir",
		  { "--prompt-cache-disk-bytes", "1G", "--prompt-cache-dir", "d" },
		  2 },
		{ "serve",
		  "--prompt-cache-disk-wait does nothing without --prompt-cache-dir",
		  { "--tune", "prompt-cache-disk-wait=2", "--prompt-cache-dir", "d" },
		  2 },
		{ "run",
		  "--prompt-cache-disk-bytes does nothing",
		  { "--prompt-cache-disk-bytes=1G", "--prompt-cache-dir=d" },
		  1 },
		{ "serve",
		  "--verify-cache does nothing with --prompt-cache-bytes 0",
		  { "--verify-cache", "1", "--prompt-cache-bytes", "0", "--prompt-cache-bytes", "1G" },
		  4 },
		{ "serve",
		  "--turn-memory does nothing with --turn-replay off",
		  { "--turn-replay", "off", "--tune", "turn-memory=1M", "--turn-replay", "text" },
		  4 },
		{ "run", "--api-key does nothing without --url", { "--api-key", "k", "--url", "u" }, 2 },
		{ "run",
		  "--num-draft-tokens does nothing with --draft-kind none",
		  { "--draft-kind=none", "--num-draft-tokens", "3", "--draft-kind=ngram" },
		  3 },
		{ "logits",
		  "--num-draft-tokens does nothing with --draft-kind none",
		  { "--num-draft-tokens", "3", "--draft", "ngram" },
		  2 },
		{ "serve",
		  "--draft-fixed does nothing with --num-draft-tokens 0",
		  { "--tune=draft-fixed", "--num-draft-tokens=0", "--num-draft-tokens=1" },
		  2 },
		{ "run",
		  "--draft-model does nothing with --draft-pretend",
		  { "-md", "m", "--tune=draft-pretend=1", "--tune=draft-pretend=0" },
		  3 },
		{ "bench",
		  "--num-draft-tokens does nothing without --draft-kind, ",
		  { "--num-draft-tokens", "3", "--draft-pretend", "0.5" },
		  2 },
		{ "bench",
		  "--draft-kind does nothing without --output-tokens",
		  { "-n", "0", "--draft-kind=ngram", "-n", "0,4" },
		  3 },
		{ "bench serve",
		  "--prefix-tokens does nothing without --prefixes",
		  { "url", "--prefix-tokens", "9", "--prefixes", "2" },
		  3 },
	};
	struct options o = { 0 };
	struct err err;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *argv[9] = { NULL };
		int all = 0, some = cases[i].accepted;
		const struct command *c = command(cases[i].command);

		while (all < 8 && cases[i].words[all]) {
			argv[all] = (char *)cases[i].words[all];
			all++;
		}
		err.msg[0] = '\0';
		assert_int_equal(options_parse(c, some, argv, &o, &err), E_ARG);
		options_fini(&o);
		if (!strstr(err.msg, cases[i].says))
			fail_msg("'%s' does not say '%s'", err.msg, cases[i].says);
		if (options_parse(c, all, argv, &o, &err))
			fail_msg("%s: %s", cases[i].command, err.msg);
		options_fini(&o);
		argv[some] = (char *)"--help";
		assert_int_equal(options_parse(c, some + 1, argv, &o, &err), 0);
		options_fini(&o);
	}
	/* What is measured may be nothing: scripts go through such rows. */
	assert_int_equal(parse("bench", &o, &err, "-n", "0", "-b", "1", "-d", "0", "--depth-filled", NULL), 0);
	options_fini(&o);
	/* A server elsewhere has the model: nothing about one here, but its name. */
	refused("run", "--threads does nothing with --url", "--url=u", "-t=2");
	refused("run", "--kv-bits does nothing with --url", "--url=u", "--kv-bits=4");
	refused("run", "--chat-template does nothing with --url", "--url=u", "--chat-template=f");
	assert_int_equal(parse("run", &o, &err, "--url=u", "-m", "name", "--temp", "0", "--think", "on",
	                       "--log-level=warn", NULL),
	                 0);
	assert_int_equal(parse("run", &o, &err, "--url=u", "--think=on", "--chat-template-args={}", NULL), E_ARG);
	options_fini(&o);
}

/* ---- bench ---- */

/* A counter of the system: root/intel-rapl:i/name. */
static void counter(const char *root, int i, const char *name, const char *value)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/intel-rapl:%d", root, i);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/intel-rapl:%d/%s", root, i, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(value, f);
	fclose(f);
}

static void test_energy(void **state)
{
	char root[] = "/tmp/weft-energy-XXXXXX", command[64];
	struct energy e;

	assert_non_null(mkdtemp(root));
	energy_open(&e, root);
	energy_begin(&e);
	assert_true(energy_joules(&e) < 0); /* the system counts none */
	counter(root, 0, "energy_uj", "1000000\n");
	counter(root, 0, "max_energy_range_uj", "9000000\n");
	counter(root, 1, "energy_uj", "8000000\n");
	counter(root, 1, "max_energy_range_uj", "9000000\n");
	counter(root, 2, "energy_uj", "5\n"); /* it does not say where it begins again */
	energy_open(&e, root);
	assert_int_equal(e.n, 2);
	energy_begin(&e);
	counter(root, 0, "energy_uj", "3500000\n");
	counter(root, 1, "energy_uj", "250000\n"); /* began again */
	assert_true(energy_joules(&e) == 2.5 + 1.25);
	snprintf(command, sizeof command, "rm -r %s", root);
	assert_int_equal(system(command), 0);
	assert_true(energy_joules(&e) < 0);
}

/* Of 100 tokens that read 1 GB and take 20 G operations of int8. */
static struct bench_row row_of(double *rate, double read, double int8)
{
	struct bench_row r = { .n_gen = 100, .batch = 1, .tokens = 100, .rate = rate, .n_run = 1, .cost.n = 1 };

	r.cost.row[0] = (struct op_cost){ .op = "linear", .what = "", .bytes = 1e9, .int_ops = 20e9 };
	r.before = r.after = r.ceilings = (struct ceilings){ .read = read, .int8 = int8, .f32 = 1e9 };
	return r;
}

static void says(const struct bench_row *r, const char *what, bool does)
{
	struct buf out;

	buf_init(&out);
	bench_print_row(r, &out);
	buf_putc(&out, '\0');
	if (!strstr(out.p, what) == does)
		fail_msg("'%s' is %s in: %s", what, does ? "not" : "", out.p);
	buf_fini(&out);
}

/* A share of the floor is a share, or the row says what is wrong with it. */
static void test_floor(void **state)
{
	double rate = 500, from, to;
	struct bench_row r = row_of(&rate, 10e9, 400e9);
	const char *by, *name;

	assert_true(bench_floor(&r, &by) == 1000 && !strcmp(by, "read"));
	says(&r, "50%  read", true);
	says(&r, "floor", false);
	says(&r, "quiet", false);
	r.before.int8 = 100e9; /* binds nothing here */
	says(&r, "quiet", false);
	r.after.read = 8.5e9;
	assert_true(bench_ceiling_moved(&r, &name, &from, &to) > 0.17 && !strcmp(name, "read"));
	says(&r, "read was at 10.0 G/s before this row and 8.5 after", true);
	rate = 1100;
	says(&r, "above its floor", true);
	r = row_of(&rate, 10e9, 0);
	assert_true(bench_floor(&r, &by) == 0);
	says(&r, "no floor", true);
	says(&r, "inf", false);
	says(&r, "nan", false);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults), cmocka_unit_test(test_values), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_idle),     cmocka_unit_test(test_tune),   cmocka_unit_test(test_energy),
		cmocka_unit_test(test_floor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
