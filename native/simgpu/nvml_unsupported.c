/* What the simulated NVML does not do: that is an answer, and a missing function is none. */
#include "nvml.h"

#define UNSUPPORTED(name)             \
    EXPORT nvmlReturn_t name(void);   \
    EXPORT nvmlReturn_t name(void)    \
    {                                 \
        return NVML_ERROR_NOT_SUPPORTED; \
    }
#include "nvml_unsupported.def"
