#ifndef SIMGPU_CONTROL_H
#define SIMGPU_CONTROL_H

#include <stdio.h>

#include "timeline.h"

void status_write(struct node *node, FILE *out);
/* 0, or -1 with a sentence that names the wrong value and what is accepted. */
int fault_apply(struct node *node, const char *kind, const char *target, const char *value, char *error, size_t error_size);

#endif
