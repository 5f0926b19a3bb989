/* Folders whose files for embedders are wrong, or are another kind's: each becomes an error that names the file and what is
 * wrong, or scores as they should be.
 *
 *     folders_test BERT [QWEN3_RERANKER]    folders of goldens */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../check.h"
#include "base/log.h"
#include "driver.h"
#include "embed/embedder.h"
#include "host/load.h"
#include "store/safetensors.h"

static char tmp[64];

static void write_file(const char *name, const char *text)
{
	char path[4300];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", tmp, name);
	unlink(path);
	f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s", path);
}

/* The weights of a LayerNorm in the second folder of modules. */
static void write_norm(void)
{
	static const float gains[48];
	struct tensor_out gain = { "norm.weight", DT_F32, 1, { 48 }, gains };
	char path[4300];
	struct err err;

	snprintf(path, sizeof path, "%s/2_Module/model.safetensors", tmp);
	CHECK(!safetensors_write(path, &gain, 1, &err), "%s", err.msg);
}

/* A folder with links to the files of another, and two folders of modules. */
static void make_folder(const char *from)
{
	static const char *const files[] = { "config.json", "model.safetensors", "tokenizer.json",
		                             "tokenizer_config.json" };
	char path[4300], of[4300];

	snprintf(tmp, sizeof tmp, "/tmp/weft-embed-XXXXXX");
	CHECK(mkdtemp(tmp), "%s", tmp);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(path, sizeof path, "%s/%s", tmp, files[i]);
		snprintf(of, sizeof of, "%s/%s", from, files[i]);
		if (!access(of, R_OK))
			CHECK(!symlink(of, path), "%s", path);
	}
	for (int i = 1; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%d_Module", tmp, i);
		CHECK(!mkdir(path, 0700), "%s", path);
	}
	write_norm();
}

static void drop_folder(void)
{
	char command[100];

	snprintf(command, sizeof command, "rm -r %s", tmp);
	CHECK(!system(command), "%s", command);
}

static int open_folder(struct session *s, struct err *err)
{
	struct host_opts o;

	host_opts_init(&o);
	o.model = tmp;
	o.device = "cpu";
	o.arith = ARITH_F32;
	o.threads = 1;
	o.queue = 4;
	o.kv_bytes = 4 << 20;
	o.prefix_bytes = 0;
	o.small_pages = true;
	return session_open(s, &o, LOAD_ENGINE | LOAD_BY_HAND, err);
}

#define MODULES(kind)                                                                                       \
	"[{\"type\": \"sentence_transformers.models.Transformer\", \"path\": \"\"}, {\"type\": \"a.b." kind \
	"\", \"path\": "                                                                                    \
	"\"1_Module\"}]"

static const struct broken {
	const char *modules, *config, *extra, *extra_text, *words;
} broken[] = {
	{ "{", NULL, NULL, NULL, "modules.json" },
	{ "{}", NULL, NULL, NULL, "must be a list" },
	{ "[{}]", NULL, NULL, NULL, "module 0 has no type" },
	{ MODULES("CNN"), NULL, NULL, NULL, "type CNN" },
	{ "[{\"type\": \"a.Pooling\", \"path\": \"../x\"}]", NULL, NULL, NULL, "../x" },
	{ "[{\"type\": \"a.Pooling\", \"path\": \"/etc\"}]", NULL, NULL, NULL, "/etc" },
	{ "[{\"type\": \"a.Transformer\", \"path\": \"0_Transformer\"}]", NULL, NULL, NULL, "0_Transformer" },
	{ MODULES("Pooling"), NULL, NULL, NULL, "1_Module/config.json: missing" },
	{ MODULES("Pooling"), "{\"pooling_mode\": \"middle\"}", NULL, NULL, "middle" },
	{ MODULES("Pooling"), "{\"pooling_mode_cls_token\": 5}", NULL, NULL, "pooling_mode_cls_token" },
	{ MODULES("Dense"), "{}", NULL, NULL, "in_features" },
	{ MODULES("Dense"), "{\"in_features\": 48, \"out_features\": 0}", NULL, NULL, "out_features" },
	{ MODULES("Dense"), "{\"in_features\": 48, \"out_features\": 8, \"activation_function\": \"x.Swoosh\"}", NULL,
	  NULL, "Swoosh" },
	{ MODULES("Dense"), "{\"in_features\": 48, \"out_features\": 8}", NULL, NULL, "1_Module/model.safetensors" },
	{ MODULES("Dense"), "{\"in_features\": 48, \"out_features\": 8}", "1_Module/model.safetensors", "abcdefghijk",
	  "1_Module/model.safetensors" },
	{ MODULES("LogitScore"), "{\"true_token_id\": 99999}", NULL, NULL, "true_token_id" },
	{ "[{\"type\": \"a.LayerNorm\", \"path\": \"2_Module\"}, {\"type\": \"a.Pooling\", \"path\": \"1_Module\"}]",
	  "{}", "2_Module/config.json", "{\"dimension\": 48}",
	  "1_Module/config.json: a Pooling of what another module" },
	{ "[]", NULL, "config_sentence_transformers.json", "{\"prompts\": {\"a\": 5}}", "\"a\" is not a string" },
	{ "[]", NULL, "config_sentence_transformers.json", "{\"default_prompt_name\": \"b\"}", "default_prompt_name" },
	{ "[]", NULL, "sentence_bert_config.json", "[", "sentence_bert_config.json" },
};

static void test_broken(const char *from)
{
	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
		const struct broken *b = &broken[i];
		struct session s;
		struct err err;

		make_folder(from);
		write_file("modules.json", b->modules);
		if (b->config)
			write_file("1_Module/config.json", b->config);
		if (b->extra)
			write_file(b->extra, b->extra_text);
		CHECK(open_folder(&s, &err), "case %zu was opened: %s", i, b->modules);
		CHECK(strstr(err.msg, b->words), "case %zu: no \"%s\" in: %s", i, b->words, err.msg);
		drop_folder();
	}
	printf("%zu broken folders are refused by name\n", sizeof broken / sizeof *broken);
}

/* Heads that are known by name alone. */
static void test_refused_heads(const char *from)
{
	static const char *const arch[] = { "JinaForRanking", "GecTaggerForGEC", "Lfm2BidirForSequenceRouting" };

	for (size_t i = 0; i < sizeof arch / sizeof *arch; i++) {
		char config[900], path[4300];
		struct session s;
		struct err err;

		make_folder(from);
		snprintf(path, sizeof path, "%s/config.json", tmp);
		snprintf(
			config, sizeof config,
			"{\"architectures\": [\"%s\"], \"model_type\": \"bert\", \"hidden_size\": 48, \"num_hidden_layers\": 3,"
			"\"num_attention_heads\": 3, \"intermediate_size\": 80, \"max_position_embeddings\": 56,"
			"\"type_vocab_size\": 2, \"vocab_size\": 160}",
			arch[i]);
		write_file("config.json", config);
		CHECK(open_folder(&s, &err) == E_UNSUPPORTED && strstr(err.msg, arch[i]), "%s: %s", arch[i], err.msg);
		drop_folder();
	}
}

/* Qwen3-Reranker's score by the rows of two words. */
static void test_words(const char *from)
{
	char path[4300], name[32];
	struct safetensors golden;
	struct session s;
	struct err err;
	float most = 0;
	int i;

	make_folder(from);
	write_file("modules.json", MODULES("LogitScore"));
	write_file("1_Module/config.json", "{\"true_token_id\": 97, \"false_token_id\": 21}");
	CHECK(!open_folder(&s, &err), "%s", err.msg);
	snprintf(path, sizeof path, "%s/golden.safetensors", from);
	CHECK(!safetensors_open(&golden, path, &err), "%s", err.msg);
	CHECK(s.embedder->kind == RANKS && s.embedder->asks, "not a reranker");
	for (i = 0;; i++) {
		struct ask ask = { 0 };
		struct request *r;
		struct event ev = { 0 };
		const struct tensor *ids, *score;
		int32_t id[128];
		float v, want;
		size_t n;

		snprintf(name, sizeof name, "ids_%d", i);
		if (!(ids = safetensors_find(&golden, name)))
			break;
		memcpy(id, ids->data, (size_t)ids->count * sizeof *id);
		ask.prompt = id;
		ask.n_prompt = (int)ids->count;
		ask.rows = embedder_rows(s.embedder, id, ask.n_prompt, 0, &ask.rows_from);
		sampler_params_init(&ask.sampling);
		CHECK(!engine_submit(s.engine, &ask, &r, &err), "%s", err.msg);
		while (engine_step(s.engine))
			;
		while (request_next(r, &ev) && ev.kind != EV_DONE)
			;
		embedder_run(s.embedder, request_rows(r, &n), &v);
		embedder_scores(s.embedder, &v, false);
		snprintf(name, sizeof name, "score_%d", i);
		score = safetensors_find(&golden, name);
		memcpy(&want, score->data, sizeof want);
		most = fmaxf(most, fabsf(v - want));
		request_free(r);
	}
	CHECK(i && most < 1e-5f, "%d scores, %g off", i, (double)most);
	printf("%d scores by two words, %.1e off\n", i, (double)most);
	safetensors_close(&golden);
	session_close(&s);
	drop_folder();
}

int main(int argc, char **argv)
{
	char *bert, *ranker;

	log_set_level(LOG_ERROR);
	CHECK(argc > 1, "usage: folders_test BERT [QWEN3_RERANKER]");
	bert = realpath(argv[1], NULL);
	test_broken(bert);
	test_refused_heads(bert);
	free(bert);
	if (argc > 2 && shared_argument(argv, 2)) {
		ranker = realpath(argv[2], NULL);
		test_words(ranker);
		free(ranker);
	}
	return 0;
}
