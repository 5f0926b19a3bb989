/* picture.h - what a family does with an image before its tower: at which size, cut into which views, in which patches.
 *
 * Everything is a function of the image's size and the settings, and is known before a pixel is resampled: how many
 * rows an image has in a prompt, and which tokens are around them.  The formulas are those of Hugging Face's
 * processors. */
#ifndef VISION_PICTURE_H
#define VISION_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "vision/pixels/resample.h"

/* How an image gets its size. */
enum picture_size {
	SIZE_AREA,    /* to multiples of a unit, the area between two bounds: Qwen */
	SIZE_SQUARE,  /* to a fixed square, whatever its aspect: Gemma 3 */
	SIZE_FILL,    /* to the largest multiples of a unit that a number of patches holds, enlarged too: Gemma 4 */
	SIZE_TILES,   /* as SIZE_AREA; a large one into tiles, and once more as a whole: LFM2-VL */
	SIZE_LONGEST, /* no edge beyond a bound, then up to multiples of a unit: Pixtral */
};

enum {
	PICTURE_VIEWS = 65,      /* most tiles, and the whole */
	PICTURE_EDGE_MAX = 32768 /* of a resized image */
};

struct picture_form {
	enum picture_size size;
	enum resample resample;
	int patch, merge;           /* pixels of a patch's edge; patches of a row's edge in the prompt */
	int frames;                 /* copies of its pixels in a patch, for towers that read videos */
	int64_t area_min, area_max; /* SIZE_AREA and SIZE_TILES: pixels */
	int edge;                   /* SIZE_SQUARE, SIZE_LONGEST; of a tile */
	int patches_max;            /* SIZE_FILL */
	int tiles_min, tiles_max;   /* SIZE_TILES */
	double tolerance;           /* tiled from tolerance * area_max pixels on */
	bool split, whole;          /* SIZE_TILES: large images are cut, and also seen as a whole */
	float mean[3], std[3];      /* of values in [0, 1] */
	bool levels;                /* values are the levels less 127.5, for a tower that norms each patch */
};

/* A part of the resized image that the tower sees alone, in pixels; grid_h x grid_w patches. */
struct picture_view {
	int source; /* which of the resizings */
	int x, y, w, h;
	int grid_h, grid_w;
};

struct picture_plan {
	struct {
		int w, h;
	} resize[2]; /* what the image is resized to; the second for the view of the whole with tiles */
	int n_resize, tile_rows, tile_cols; /* tiles 0: none */
	struct picture_view view[PICTURE_VIEWS];
	int n_view;
	int rows; /* in the prompt, of all views */
};

/* E_LIMIT: a size that the family refuses. */
int picture_plan(struct picture_plan *out, const struct picture_form *f, int w, int h, struct err *err);

/* Overwrites f's bounds, mean and std with what a processor's config says, which may be NULL. */
int picture_read(struct picture_form *f, const struct json *processor, const char *file, struct err *err);

/* Patch (row, col) of a view, as the weights of its embedding want it: channels_last: [frames][y][x][3], else
 * [3][frames][y][x]; 3 * frames * patch * patch floats.  value: picture_values. */
void picture_patch(float *out, const struct picture_form *f, const struct image *view, int row, int col,
                   bool channels_last, const float value[3][256]);
/* The values that the tower reads for the 256 levels of each colour. */
void picture_values(float value[3][256], const struct picture_form *f);

#endif
