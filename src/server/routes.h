/* routes.h - what this server answers: one line in routes.c for each. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/http/exchange.h"

extern const struct endpoint adapters_endpoint, adapters_set_endpoint, cache_drop_endpoint, cache_explain_endpoint,
	cache_node_endpoint, cache_pin_endpoint, cache_tree_endpoint, cache_unpin_endpoint, cache_warm_endpoint,
	chat_endpoint, completions_endpoint, conversation_create_endpoint, conversation_drop_endpoint,
	conversation_get_endpoint, conversation_post_endpoint, count_tokens_endpoint, detokenize_endpoint,
	embed_endpoint, gemini_endpoint, health_endpoint, infill_endpoint, input_tokens_endpoint, messages_endpoint,
	metrics_endpoint, model_endpoint, models_endpoint, native_endpoint, ollama_chat_endpoint, ollama_embed_endpoint,
	ollama_embeddings_endpoint, ollama_generate_endpoint, ollama_ps_endpoint, ollama_show_endpoint,
	ollama_tags_endpoint, ollama_unsupported_endpoint, ollama_version_endpoint, page_endpoint, props_endpoint,
	requests_endpoint, requests_list_endpoint, response_cancel_endpoint, response_compact_endpoint,
	response_drop_endpoint, response_get_endpoint, responses_endpoint, slots_endpoint, template_endpoint,
	tokenize_endpoint, tokenizer_info_endpoint, transcribe_endpoint, classify_endpoint, cohere_embed_endpoint,
	llama_embedding_endpoint, pooling_endpoint, predict_endpoint, rerank_endpoint, score_endpoint,
	similarity_endpoint, tei_embed_all_endpoint, tei_embed_endpoint, tei_info_endpoint, sleep_endpoint,
	wake_up_endpoint, is_sleeping_endpoint, version_endpoint, load_endpoint, render_chat_endpoint,
	render_texts_endpoint;

/* Walks through served.aliases, which *at is at first: the next name, of *n bytes, or NULL. */
const char *served_alias(const char **at, size_t *n);

/* Appends a list of what a model can do: "completion", and a name for each bit of `can` (served_can). */
void put_capabilities(unsigned can, struct buf *b);

#endif
