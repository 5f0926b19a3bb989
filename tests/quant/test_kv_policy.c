/* test_kv_policy.c - what --kv-... asks for, and what a model's layers get. */
#include <string.h>

#include "quant/kv/kv_policy.h"
#include "../check.h"

enum { LAYERS = 8 };

static int parse(struct kv_policy *p, struct kv_ask ask, struct err *err)
{
	*err = (struct err){ 0 };
	return kv_policy_parse(p, &ask, err);
}

static void refuses(struct kv_ask ask, const char *one, const char *other)
{
	struct kv_policy p;
	struct err err;

	CHECK(parse(&p, ask, &err) == E_ARG, "'%s' and '%s' were taken", one, other);
	CHECK(strstr(err.msg, one) && strstr(err.msg, other), "'%s' or '%s' is not in: %s", one, other, err.msg);
}

/* What a person would read, of heads of `dim`; or the error. */
static void becomes(struct kv_ask ask, int dim, const char *want)
{
	struct kv_pair layer[LAYERS];
	struct kv_dims dims[LAYERS];
	struct kv_policy p;
	struct buf text;
	struct err err;

	for (int i = 0; i < LAYERS; i++)
		dims[i] = (struct kv_dims){ dim, dim };
	buf_init(&text);
	CHECK(!parse(&p, ask, &err), "%s", err.msg);
	if (kv_policy_apply(&p, LAYERS, dims, kv_format_find("bf16"), layer, &err))
		buf_puts(&text, err.msg);
	else
		kv_layers_describe(&text, layer, LAYERS);
	CHECK(!strcmp(text.p, want), "'%s', not '%s'", text.p, want);
	buf_fini(&text);
}

static void test_parse(void)
{
	static const struct {
		const char *bits;
		int key, value;
	} good[] = {
		{ NULL, 0, 0 },  { "16", 16, 16 }, { "8", 8, 8 },   { "4", 4, 4 },
		{ "3.5", 3, 4 }, { "3", 3, 3 },    { "2.5", 2, 3 }, { "2", 2, 2 },
	};
	struct kv_policy p;
	struct err err;

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		CHECK(!parse(&p, (struct kv_ask){ .bits = good[i].bits }, &err), "%s", err.msg);
		CHECK(p.key.bits == good[i].key && p.value.bits == good[i].value, "%zu", i);
		CHECK(kv_policy_plain(&p) == (good[i].key % 16 == 0), "%zu", i);
		CHECK(p.key.scheme == (good[i].key % 16 == 0 ? KV_PLAIN :
		                       good[i].key == 8      ? KV_UNIFORM :
		                                               KV_TURBOQUANT),
		      "%zu", i);
	}
	CHECK(!parse(&p, (struct kv_ask){ .bits = "4", .key_bits = "8", .scheme = "uniform" }, &err), "%s", err.msg);
	CHECK(p.key.bits == 8 && p.value.bits == 4 && p.value.scheme == KV_UNIFORM, "one side by itself");
	CHECK(!parse(&p, (struct kv_ask){ .value_bits = "2" }, &err), "%s", err.msg);
	CHECK(p.key.scheme == KV_PLAIN && !kv_policy_plain(&p), "values alone");

	refuses((struct kv_ask){ .bits = "5" }, "--kv-bits", "'5'");
	refuses((struct kv_ask){ .bits = "" }, "--kv-bits", "''");
	refuses((struct kv_ask){ .bits = "8", .key_bits = "3.5" }, "--kv-key-bits", "'3.5'");
	refuses((struct kv_ask){ .bits = "8", .value_bits = "x" }, "--kv-value-bits", "'x'");
	refuses((struct kv_ask){ .bits = "4", .scheme = "turbo" }, "--kv-quant-scheme", "'turbo'");
	refuses((struct kv_ask){ .bits = "8", .scheme = "turboquant" }, "turboquant", "keys of 8");
	refuses((struct kv_ask){ .bits = "3.5", .scheme = "uniform" }, "uniform", "keys of 3");
	refuses((struct kv_ask){ .bits = "4", .value_bits = "2", .scheme = "uniform" }, "uniform", "values of 2");
	refuses((struct kv_ask){ .bits = "3", .group = 64 }, "--kv-group-size 64", "turboquant");
	refuses((struct kv_ask){ .group = 64 }, "--kv-group-size", "16 bits");
	refuses((struct kv_ask){ .bits = "16", .scheme = "uniform" }, "--kv-quant-scheme", "16 bits");
	refuses((struct kv_ask){ .skip = "last" }, "--kv-skip-layers", "16 bits");
	refuses((struct kv_ask){ .bits = "8", .skip = "" }, "--kv-skip-layers", "''");
	refuses((struct kv_ask){ .bits = "8", .skip = "first," }, "--kv-skip-layers", "'first,'");
	refuses((struct kv_ask){ .bits = "8", .skip = "firs" }, "--kv-skip-layers", "'firs'");
	refuses((struct kv_ask){ .bits = "8", .skip = "1,none" }, "--kv-skip-layers", "'1,none'");
	refuses((struct kv_ask){ .bits = "8", .skip = "99999999999999999999" }, "--kv-skip-layers",
	        "99999999999999999999");
}

static void test_apply(void)
{
	becomes((struct kv_ask){ 0 }, 256, "bf16 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "16" }, 256, "bf16 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "8" }, 256, "u8g64 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "8" }, 96, "u8g32 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "8", .group = 128, .skip = "none" }, 256,
	        "u8g128 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "4", .scheme = "uniform", .key_bits = "8", .skip = "first,3,-2" }, 128,
	        "bf16 in attention layers 0, 3, 6; keys u8g64, values u4g64 in attention layers 1-2, 4-5, 7 of 8");
	becomes((struct kv_ask){ .value_bits = "8", .skip = "first,last" }, 64,
	        "bf16 in attention layers 0, 7; keys bf16, values u8g64 in attention layers 1-6 of 8");
	becomes((struct kv_ask){ .bits = "3.5" }, 256, "keys tq3, values tq4 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "2" }, 64, "tq2 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "4" }, 96, "u4g32 in attention layers 0-7 of 8");
	becomes((struct kv_ask){ .bits = "4", .scheme = "turboquant" }, 96,
	        "turboquant of 4 bits (tq4) is not for the model's heads of 96");
	becomes((struct kv_ask){ .bits = "2" }, 96, "turboquant of 2 bits (tq2) is not for the model's heads of 96");
	becomes((struct kv_ask){ .bits = "8", .group = 16 }, 64,
	        "uniform of 8 bits (u8g16): there is no such format of keys and values");
	becomes((struct kv_ask){ .bits = "8", .skip = "8" }, 256,
	        "--kv-skip-layers 8: 8 is not one of the model's 8 attention layers, which are counted from 0");
	becomes((struct kv_ask){ .bits = "8", .skip = "last,-9" }, 256,
	        "--kv-skip-layers last,-9: -9 is not one of the model's 8 attention layers, which are counted from 0");
	becomes((struct kv_ask){ .bits = "8", .group = 48 }, 64,
	        "--kv-group-size 48 does not divide the model's heads of 64");
	becomes((struct kv_ask){ .bits = "8" }, 80,
	        "--kv-quant-scheme uniform needs groups of 32 at least, which do not divide "
	        "the model's heads of 80");
}

/* The text is about the formats alone. */
static void test_describe(void)
{
	const struct kv_format a = { .name = "a" }, b = { .name = "b" };
	const struct kv_pair layer[] = { { &b, &b }, { &a, &a }, { &a, &b }, { &b, &b }, { &a, &a } };
	struct buf text;

	buf_init(&text);
	kv_layers_describe(&text, layer, 5);
	CHECK(!strcmp(text.p,
	              "b in attention layers 0, 3; a in attention layers 1, 4; keys a, values b in attention layers 2 of 5"),
	      "%s", text.p);
	buf_fini(&text);
}

int main(void)
{
	test_parse();
	test_apply();
	test_describe();
	return 0;
}
