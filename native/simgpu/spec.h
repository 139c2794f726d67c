/* What cards a node has: "t4:2,a800:8", or a TOML file of own cards. */
#ifndef SIMGPU_SPEC_H
#define SIMGPU_SPEC_H

#include <stddef.h>

#include "layout.h"

/* Fills `cards` (without UUIDs) and returns their number; -1 and a sentence in `error` when `text` is wrong. */
int spec_parse(const char *text, struct card_spec *cards, int max_cards, char *error, size_t error_size);

#endif
