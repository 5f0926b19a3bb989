/* made_model.h - a model of Qwen3.5's shape with random weights of 4 bits in groups of 64, as a folder, for machines without the
 * tools that make others (bench/make-checkpoint). */
#ifndef TESTS_DEVICE_MADE_MODEL_H
#define TESTS_DEVICE_MADE_MODEL_H

struct made_shape {
	const char *name;
	int hidden, layers, heads, heads_kv, rec_keys, rec_values, inner,
		vocab; /* every fourth layer attends; heads of 256, 128 */
};
extern const struct made_shape made_shapes[]; /* ended by a name of NULL */

/* Writes config.json and model.safetensors to the folder, which is made.  Ends the program where it cannot. */
void made_model(const struct made_shape *, const char *folder);

#endif
