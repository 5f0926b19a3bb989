/* Numbers of a config that is hostile: defaults that follow from other keys are held to the bounds of written values, and what
 * reads a size into an array checks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "model/conf.h"
#include "model/mamba.h"
#include "model/rotary.h"

static struct err err;

static struct conf conf_of(const char *text, struct json **j)
{
	*j = json_parse(text, strlen(text), 0, &err);
	assert_non_null(*j);
	return (struct conf){ .j = *j, .file = "config.json", .where = "", .err = &err };
}

static void test_default_held(void **state)
{
	static const struct {
		int64_t dflt;
		int code;
	} cases[] = { { 2, 0 },           { 4096, 0 },     { 1, E_FORMAT },
		      { 4097, E_FORMAT }, { 0, E_FORMAT }, { INT64_MAX, E_FORMAT } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct json *j;
		struct conf c = conf_of("{}", &j);
		int v = conf_int_or(&c, "head_dim", cases[i].dflt, 2, 4096);

		assert_int_equal(c.code, cases[i].code);
		assert_in_range(v, 2, 4096);
		if (c.code)
			assert_non_null(strstr(err.msg, "config.json: head_dim: missing, and "));
		json_free(j);
	}
}

/* Both texts, since dim decides how much is written and longrope what. */
static void test_rotary_room(void **state)
{
	static const char *const texts[] = {
		"{\"rope_theta\":10000}",
		"{\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}",
	};
	static const int dims[] = {
		CONF_HEAD_DIM_MAX + 2, 2 * CONF_HEAD_DIM_MAX, 1 << 17, 0, -8, 4, CONF_HEAD_DIM_MAX
	};
	struct rotary_defaults d = { .partial = 1 };

	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
		for (int k = 0; k < 2; k++) {
			bool good = dims[i] >= 2 && dims[i] <= CONF_HEAD_DIM_MAX;
			struct json *j;
			struct conf c = conf_of(texts[k], &j);
			struct rope rope = { 0 };
			struct arena a;
			int ctx = 4096;

			arena_init(&a);
			rotary_read(&rope, &c, &d, dims[i], &ctx, &a);
			assert_int_equal(c.code, good ? 0 : E_FORMAT);
			assert_int_equal(rope.n_freq, good ? dims[i] / 2 : 0);
			arena_fini(&a);
			json_free(j);
		}
}

static void test_mamba_head(void **state)
{
	static const int dims[] = { 0, CONF_HEAD_DIM_MAX + 1, 1 << 26, 64 };

	for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
		struct json *j;
		struct conf c = conf_of("{}", &j);
		struct mamba_form f = { 0 };

		mamba_sizes(&f, &c, 1, dims[i], 1, 16, 4);
		assert_int_equal(c.code, dims[i] == 64 ? 0 : E_FORMAT);
		json_free(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default_held),
		cmocka_unit_test(test_rotary_room),
		cmocka_unit_test(test_mamba_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
