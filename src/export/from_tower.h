/* from_tower.h - the tower of a model folder as a source of a projector file ("mmproj-*.gguf"), laid out as llama.cpp's converter
 * lays it out. */
#ifndef EXPORT_FROM_TOWER_H
#define EXPORT_FROM_TOWER_H

#include "export/gguf_source.h"
#include "store/store.h"

/* Numbers of a tower that was opened, so that they are within bounds. */
struct tower_facts {
	int depth, hidden, heads, patch, merge;
	int out;                    /* width of the text model's vectors */
	int edge;                   /* pixels, the longest of a picture; 0: there is no such bound */
	int64_t area_min, area_max; /* pixels; area_max 0: there are no such bounds */
	float mean[3], std[3];
	int rows;       /* of an image, the most; 0: there is no such bound */
	bool both_ways; /* rows of an image see each other */
	bool hears;     /* it has an ear */
	int heard_blocks, heard_width;
};

/* Names, shapes and metadata of st's tower, and of its ear.  Matrices stay where st has them mapped, and in their type, so st outlives s; patch
 * kernels, vectors and position tables become F32.  text is what folder_source made of the same folder.  E_UNSUPPORTED: a family
 * whose projector files are not written, or matrices that are quantised already.  To be closed also after an error. */
int tower_source(struct gguf_source *s, struct store *st, const struct gguf_source *text, const struct tower_facts *f,
                 struct err *err);

#endif
