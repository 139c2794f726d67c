/* Every function libcuda exports, sorted by name: exported.c is made from the object files. */
#ifndef SIMGPU_SYMBOLS_H
#define SIMGPU_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

struct exported {
    const char *name;
    void (*function)(void);
};
extern const struct exported exported[];
extern const size_t exported_count;
/* Whether a name is exported only to say that it is not supported. */
bool is_unsupported(const char *name);

#endif
