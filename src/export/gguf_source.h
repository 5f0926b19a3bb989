/* gguf_source.h - what a GGUF file is made of: pairs of metadata, and tensors to be encoded.
 *
 * A source is another GGUF file, or a model folder whose names, settings and layouts are put as llama.cpp's converter puts
 * them (from_folder.h).  Matrices stay in the files that they are mapped from; where the other layout has rows or inputs in
 * another order, the source says in which. */
#ifndef EXPORT_GGUF_SOURCE_H
#define EXPORT_GGUF_SOURCE_H

#include "export/write_rows.h"
#include "store/gguf/gguf_file.h"

struct source_tensor {
	/* As the new file names and shapes it; type and data are those of the source. */
	struct gguf_info t;
	/* For a tensor in n_part runs (experts, heads): the matrix that each of them is; n_part 0: all of it is at
	 * t.data. */
	struct weight *part;
	int n_part;
	/* Row r is row[r] of the source (of its run), element c of it col[c]; NULL: in the same order. */
	const int32_t *row, *col;
	/* From one element of a row to the next, in a run of plain elements; 0: they are adjacent. With the run's
	 * row_bytes it says that a matrix is transposed, or that others are between its columns. */
	size_t col_bytes;
	struct item_scales *scales; /* of each run, or of all of it; NULL: there are none */
	/* Elements are multiplied by times, then those of row r by row_times[r]; 0 and NULL: they are not. */
	float times;
	const float *row_times;
	bool stays;           /* its codes go over as they are, unless the type that is asked for has fewer bits */
	const char *known_as; /* what a calibration calls it; NULL: t.name */
};

/* Elements in E4M3, of which no file is made; never the type that is asked for. */
extern const struct gguf_type source_e4m3;

struct gguf_source {
	struct gguf g; /* path and pairs; its tensors are not read */
	struct source_tensor *t;
	size_t n;
	bool made; /* of a folder: what is not quantised becomes F32, else it stays as it is */
	/* For a projector: every tensor stays in its type, and most matrices have the type of this name.  NULL: a mix says
	 * which. */
	const char *kept;
};

/* The file at path, whole. */
int gguf_source_open(struct gguf_source *s, const char *path, struct err *err);
void gguf_source_close(struct gguf_source *s);

/* Pairs of a source that is being made, in the arena of g.  A key that begins with a dot is one of the architecture. */
struct pairs {
	struct gguf *g;
	size_t room;      /* of g->kv */
	const char *arch; /* general.architecture */
};
void pair_u32(struct pairs *p, const char *key, uint32_t v);
void pair_f32(struct pairs *p, const char *key, double v);
void pair_bool(struct pairs *p, const char *key, bool v);
void pair_text(struct pairs *p, const char *key, const char *s, size_t n);
/* Elements are the caller's bytes in the file's form (strings: a u64 length and bytes), copied. */
void pair_list(struct pairs *p, const char *key, enum gguf_kind kind, uint64_t n, const void *bytes, size_t size);
/* After the last of them, so that they are found. */
void pairs_sort(struct pairs *p);

#endif
