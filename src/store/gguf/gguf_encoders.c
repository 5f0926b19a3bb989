/* gguf_encoders.c - config.json of encoders, and the files of sentence-transformers, from metadata.
 *
 * Keys and tensors of encoders are those that llama.cpp's converter writes.  It cuts RoBERTa's table of positions, so that
 * positions count from 0 as BERT's do; it leaves out the pooler of BERT's classifiers, whose scores then are those of the
 * first row itself. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "store/gguf/gguf_conf.h"

/* pooling_type */
enum { POOL_NONE, POOL_MEAN, POOL_FIRST, POOL_LAST, POOL_RANK };

/* Rows of a table of [rows][width]; 0: there is none. */
static int64_t rows_of(const struct gguf_conf *c, const char *name)
{
	const struct gguf_info *t = gguf_tensor_info(c->m, name);

	return t ? t->ne[1] : 0;
}

static double norm_eps(struct gguf_conf *c)
{
	bool plain = gguf_conf_has(c, "attention.layer_norm_epsilon");

	return gguf_conf_float(c, plain ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
	                       (double)NAN);
}

/* The string under the key, or dflt. */
static void put_word(struct gguf_conf *c, const char *member, const char *key, const char *dflt)
{
	struct gguf_string s = gguf_conf_string(c, key);

	gguf_put_name(c, member);
	json_put_str(c->out, s.n ? s.p : dflt, s.n ? s.n : strlen(dflt));
}

/* The head of a classifier: its class, and its labels where they are named. */
static void put_head(struct gguf_conf *c, const char *model, const char *classifier)
{
	bool ranks = gguf_conf_int(c, "pooling_type", POOL_NONE) == POOL_RANK;
	const struct gguf_value *v;
	char key[GGUF_NAME_BYTES];
	const uint8_t *at;

	gguf_put_name(c, "architectures");
	buf_putc(c->out, '[');
	json_put_cstr(c->out, ranks ? classifier : model);
	buf_putc(c->out, ']');
	snprintf(key, sizeof key, "%s.classifier.output_labels", c->m->arch->name);
	v = gguf_find(&c->m->part[0], key);
	if (!ranks || !v || !v->array || v->kind != GGUF_STRING)
		return;
	gguf_put_name(c, "id2label");
	buf_putc(c->out, '{');
	at = v->p;
	for (uint64_t i = 0; i < v->n; i++) {
		struct gguf_string s = gguf_next(&at);

		buf_printf(c->out, "%s\"%" PRIu64 "\":", i ? "," : "", i);
		json_put_str(c->out, s.p, s.n);
	}
	buf_putc(c->out, '}');
}

/* ---- config.json ---- */

/* Sizes of the kinds whose members have the usual names.  A table of positions bounds the context. */
static void put_sizes(struct gguf_conf *c)
{
	int64_t places = rows_of(c, "position_embd.weight");

	gguf_put_int(c, "hidden_size", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "num_hidden_layers", c->m->blocks);
	gguf_put_int(c, "vocab_size", rows_of(c, "token_embd.weight"));
	gguf_put_int(c, "max_position_embeddings", places ? places : gguf_conf_int(c, "context_length", GGUF_NEEDED));
	gguf_put_int(c, "num_attention_heads", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
}

void gguf_config_bert(struct gguf_conf *c)
{
	put_sizes(c);
	gguf_put_int(c, "type_vocab_size", rows_of(c, "token_types.weight"));
	gguf_put_float(c, "layer_norm_eps", norm_eps(c));
	put_word(c, "hidden_act", "hidden_act", "gelu");
	put_head(c, "BertModel", "BertForSequenceClassification");
}

void gguf_config_jina_bert(struct gguf_conf *c)
{
	gguf_config_bert(c);
	gguf_put_str(c, "position_embedding_type", "alibi");
}

void gguf_config_nomic_bert(struct gguf_conf *c)
{
	gguf_put_int(c, "n_embd", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "n_layer", c->m->blocks);
	gguf_put_int(c, "vocab_size", rows_of(c, "token_embd.weight"));
	gguf_put_int(c, "n_positions", gguf_conf_int(c, "context_length", GGUF_NEEDED));
	gguf_put_int(c, "type_vocab_size", rows_of(c, "token_types.weight"));
	gguf_put_int(c, "n_head", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_int(c, "n_inner", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_float(c, "layer_norm_epsilon", norm_eps(c));
	gguf_put_str(c, "activation_function", "swiglu");
	gguf_put_float(c, "rotary_emb_base", gguf_conf_float(c, "rope.freq_base", 1000));
	gguf_put_bool(c, "qkv_proj_bias", gguf_conf_has_tensor(c, "blk.0.attn_qkv.bias"));
	gguf_put_bool(c, "mlp_fc1_bias", gguf_conf_has_tensor(c, "blk.0.ffn_up.bias"));
	gguf_put_bool(c, "mlp_fc2_bias", gguf_conf_has_tensor(c, "blk.0.ffn_down.bias"));
}

void gguf_config_modern_bert(struct gguf_conf *c)
{
	put_sizes(c);
	gguf_put_float(c, "norm_eps", norm_eps(c));
	put_word(c, "hidden_activation", "hidden_act", "gelu");
	gguf_put_bool(c, "attention_bias", gguf_conf_has_tensor(c, "blk.0.attn_qkv.bias"));
	gguf_put_int(c, "local_attention", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_int(c, "global_attn_every_n_layers", gguf_conf_int(c, "attention.sliding_window_pattern", 3));
	gguf_put_float(c, "global_rope_theta", gguf_conf_float(c, "rope.freq_base", 160000));
	gguf_put_float(c, "local_rope_theta", gguf_conf_float(c, "rope.freq_base_swa", 10000));
	gguf_put_str(c, "classifier_pooling", "mean");
	put_head(c, "ModernBertModel", "ModernBertForSequenceClassification");
}

void gguf_config_gemma_embedding(struct gguf_conf *c)
{
	gguf_config_gemma3(c);
	gguf_put_bool(c, "use_bidirectional_attention", true);
}

/* Qwen3-Reranker: the rows of the words yes and no, in this order. */
static void put_reranker(struct gguf_conf *c)
{
	if (rows_of(c, "cls.output.weight") != 2)
		gguf_conf_fail(c, E_UNSUPPORTED,
		               "tensor cls.output.weight: %" PRId64
		               " rows; of this architecture 2 are read, of yes and no",
		               rows_of(c, "cls.output.weight"));
	put_head(c, "Qwen3ForCausalLM", "Qwen3ForSequenceClassification");
	gguf_put_bool(c, "is_original_qwen3_reranker", true);
}

void gguf_config_pooling(struct gguf_conf *c)
{
	const struct gguf_arch *a = c->m->arch;
	bool causal = gguf_conf_bool(c, "attention.causal", !a->both_ways);
	int64_t pool = gguf_conf_int(c, "pooling_type", POOL_NONE);

	if (c->code)
		return;
	if (!causal && !strcmp(a->name, "lfm2")) {
		gguf_put_name(c, "architectures");
		buf_puts(c->out, "[\"Lfm2BidirectionalModel\"]");
	} else if (causal == a->both_ways) {
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.attention.causal: %s is not done for this architecture",
		               a->name, causal ? "true" : "false");
	}
	if (pool < POOL_NONE || pool > POOL_RANK)
		gguf_conf_fail(c, E_FORMAT, "key %s.pooling_type: %" PRId64 "; 0 to 4 are read", a->name, pool);
	else if (pool == POOL_RANK && a->config != gguf_config_bert && a->config != gguf_config_jina_bert &&
	         a->config != gguf_config_modern_bert && strcmp(a->name, "qwen3"))
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.pooling_type: rank is not done for this architecture",
		               a->name);
	else if (pool == POOL_RANK && !gguf_conf_has_tensor(c, "cls.output.weight"))
		gguf_conf_fail(c, E_MISSING, "tensor cls.output.weight: missing, and %s.pooling_type is rank", a->name);
	else if (pool == POOL_RANK && !a->both_ways)
		put_reranker(c);
}

/* ---- the files of sentence-transformers ---- */

static int64_t pooling(const struct gguf_model *m, struct err *err)
{
	struct gguf_conf c = { .m = m, .err = err };
	int64_t pool = gguf_conf_int(&c, "pooling_type", POOL_NONE);

	return c.code || pool == POOL_RANK ? POOL_NONE : pool;
}

static int missing(const struct gguf_model *m, struct err *err)
{
	return err_set(err, E_MISSING, "%s: no pooling in its metadata", m->part[0].path);
}

int gguf_modules(const struct gguf_model *m, struct buf *out, struct err *err)
{
	static const char *const dense[] = { "2_Dense", "3_Dense" };
	static const char *const tensor[] = { "dense_2.weight", "dense_3.weight" };
	bool pooled = pooling(m, err) != POOL_NONE;

	if (!pooled && !gguf_tensor_info(m, tensor[0]))
		return missing(m, err);
	buf_puts(out, "[{\"type\":\"models.Transformer\",\"path\":\"\"}");
	if (pooled)
		buf_puts(out, ",{\"type\":\"models.Pooling\",\"path\":\"1_Pooling\"}");
	for (int i = 0; i < 2; i++)
		if (gguf_tensor_info(m, tensor[i]))
			buf_printf(out, ",{\"type\":\"models.Dense\",\"path\":\"%s\"}", dense[i]);
	buf_putc(out, ']');
	return 0;
}

int gguf_pooling(const struct gguf_model *m, struct buf *out, struct err *err)
{
	static const char *const name[] = { NULL, "mean", "cls", "lasttoken" };
	int64_t pool = pooling(m, err);

	if (pool <= POOL_NONE || pool > POOL_LAST)
		return missing(m, err);
	buf_printf(out, "{\"pooling_mode\":\"%s\"}", name[pool]);
	return 0;
}

static int put_dense(const struct gguf_model *m, const char *tensor, const char *bias, struct buf *out, struct err *err)
{
	const struct gguf_info *t = gguf_tensor_info(m, tensor);

	if (!t)
		return err_set(err, E_MISSING, "%s: no tensor %s", m->part[0].path, tensor);
	buf_printf(out,
	           "{\"in_features\":%" PRId64 ",\"out_features\":%" PRId64
	           ",\"bias\":%s,\"activation_function\":\"Identity\"}",
	           t->ne[0], t->ne[1], gguf_tensor_info(m, bias) ? "true" : "false");
	return 0;
}

int gguf_dense_2(const struct gguf_model *m, struct buf *out, struct err *err)
{
	return put_dense(m, "dense_2.weight", "dense_2.bias", out, err);
}

int gguf_dense_3(const struct gguf_model *m, struct buf *out, struct err *err)
{
	return put_dense(m, "dense_3.weight", "dense_3.bias", out, err);
}
