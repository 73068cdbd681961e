/* Files of a result that a user has edited: a compile that replaces the result keeps them, as FILE.edited-N beside the
 * new FILE. */
#ifndef FRONTEND_DRIVER_EDITED_H
#define FRONTEND_DRIVER_EDITED_H

#include "frontend/driver/output/output.h"

/* Copies into the staging directory what the result has of edited files: generated files outside of weights/ that
 * differ from their hash in the manifest, under the first free number and with a remark, and the copies that earlier
 * compiles have kept. A result without a readable manifest has none. 0, or -1 after a diagnostic. */
int edited_keep(struct output *output);

#endif
