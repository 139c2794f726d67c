/* Names and descriptions of results. */
#include <ctype.h>
#include <string.h>

#include "driver.h"

static const struct {
    CUresult code;
    const char *name;
} results[] = {
#define ERROR(name, number) {name, #name},
#include "../include/cuda_errors.def"
#undef ERROR
};

#define RESULTS (sizeof(results) / sizeof(results[0]))

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = NULL;
    for (size_t i = 0; i < RESULTS; i++)
        if (results[i].code == error)
            *name = results[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A description is the name in words: "out of memory". */
EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    static char texts[RESULTS][64];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *name;
    CUresult result = cuGetErrorName(error, &name);
    *text = NULL;
    if (result != CUDA_SUCCESS)
        return result;
    if (error == CUDA_SUCCESS)
        return *text = "no error", CUDA_SUCCESS;
    size_t at = 0;
    while (results[at].code != error)
        at++;
    pthread_mutex_lock(&lock);
    const char *words = name + strlen("CUDA_ERROR_");
    for (size_t i = 0; words[i] && i + 1 < sizeof(texts[0]); i++)
        texts[at][i] = words[i] == '_' ? ' ' : (char)tolower((unsigned char)words[i]);
    pthread_mutex_unlock(&lock);
    *text = texts[at];
    return CUDA_SUCCESS;
}
