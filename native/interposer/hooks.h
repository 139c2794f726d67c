#ifndef INTERPOSER_HOOKS_H
#define INTERPOSER_HOOKS_H

#include <stdbool.h>

/* Our function of exactly this name, or NULL. */
void *hook_of_symbol(const char *symbol);
/* The answer of cuGetProcAddress where the driver's would be `found`. */
void *hook_instead_of(void *found, const char *name, int version, bool is_per_thread);

#endif
