#ifndef INTERPOSER_HOOKS_H
#define INTERPOSER_HOOKS_H

#include <stdbool.h>

/* Our function of exactly this name, or NULL. */
void *hook_of_symbol(const char *symbol);
/* What cuGetProcAddress is to answer where the driver answered `found`. */
void *hook_instead_of(void *found, const char *name, int version, bool is_per_thread);

#endif
