/* Writes the logits of token ids as llama.cpp or ik_llama.cpp computes them, for bench/kl-beside.
 *
 *     peer-logits MODEL.gguf IDS OUT [THREADS]
 *
 * IDS is any text whose whole numbers are the ids, as the file for weft's --ids.  OUT becomes the logits of every position in
 * float32, one row of the vocabulary after the other.  One prompt in one batch, keys and values as that program keeps them.
 *
 * Not part of the build: it needs the header and libraries of the other program.  In its build folder, after it was built:
 *     cc -O2 -I../include -I../ggml/include -c bench/peer-logits.c -o peer-logits.o
 *     c++ peer-logits.o src/libllama.a $(ls ggml/src/lib*.a) -fopenmp -lpthread -ldl -o peer-logits
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "llama.h"

static int read_ids(const char *path, llama_token **out)
{
	FILE *f = fopen(path, "r");
	int n = 0, room = 0, c;
	long v = -1;

	*out = NULL;
	if (!f)
		return 0;
	do {
		c = fgetc(f);
		if (isdigit(c)) {
			v = (v < 0 ? 0 : v * 10) + (c - '0');
		} else if (v >= 0) {
			if (n == room)
				*out = realloc(*out, (size_t)(room = 2 * room + 64) * sizeof **out);
			(*out)[n++] = (llama_token)v;
			v = -1;
		}
	} while (c != EOF);
	fclose(f);
	return n;
}

int main(int argc, char **argv)
{
	struct llama_model_params mp = llama_model_default_params();
	struct llama_context_params cp = llama_context_default_params();
	struct llama_model *model;
	struct llama_context *ctx;
	struct llama_batch batch;
	llama_token *id;
	size_t vocab;
	FILE *out;
	int n;

	if (argc < 4 || !(n = read_ids(argv[2], &id))) {
		fprintf(stderr, "usage: peer-logits MODEL.gguf IDS OUT [THREADS]\n");
		return 2;
	}
	llama_backend_init();
	mp.n_gpu_layers = 0;
	model = llama_model_load_from_file(argv[1], mp);
	if (!model)
		return 1;
	cp.n_ctx = (uint32_t)(n + 255) / 256 * 256;
	cp.n_batch = cp.n_ubatch = cp.n_ctx;
	cp.n_threads = cp.n_threads_batch = argc > 4 ? atoi(argv[4]) : 2;
	ctx = llama_init_from_model(model, cp);
	if (!ctx)
		return 1;
	vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
	batch = llama_batch_init(n, 0, 1);
	batch.n_tokens = n;
	for (int i = 0; i < n; i++) {
		batch.token[i] = id[i];
		batch.pos[i] = i;
		batch.n_seq_id[i] = 1;
		batch.seq_id[i][0] = 0;
		batch.logits[i] = 1;
	}
	out = fopen(argv[3], "wb");
	if (!out || llama_decode(ctx, batch))
		return 1;
	for (int i = 0; i < n; i++)
		if (fwrite(llama_get_logits_ith(ctx, i), sizeof(float), vocab, out) != vocab)
			return 1;
	return fclose(out) != 0;
}
