/* What the simulated driver does not do: each of these answers CUDA_ERROR_NOT_SUPPORTED whatever it is given. */
#include <string.h>

#include "driver.h"
#include "symbols.h"

#define UNSUPPORTED(name)       \
    EXPORT CUresult name(void); \
    EXPORT CUresult name(void)  \
    {                           \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
#include "unsupported.def"
#undef UNSUPPORTED

bool is_unsupported(const char *name)
{
    static const char *const names[] = {
#define UNSUPPORTED(name) #name,
#include "unsupported.def"
#undef UNSUPPORTED
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}
