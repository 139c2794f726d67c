/* The functions behind ours: the driver's own, or those of a library preloaded after us. */
#ifndef INTERPOSER_REAL_H
#define INTERPOSER_REAL_H

#include <stdbool.h>

#include "../include/cuda_abi.h"
#include "../include/nvml_abi.h"

struct real {
#define GATED(symbol, name, since, variant, stream, parameters, arguments) \
    CUresult(*symbol) parameters;                                          \
    CUresult(*symbol##_##variant) parameters;
#define BLOCKING(symbol, name, since, variant, parameters, arguments) \
    CUresult(*symbol) parameters;                                     \
    CUresult(*symbol##_##variant) parameters;
#define HANDLED(symbol, name, since, parameters, arguments) CUresult(*symbol) parameters;
#define HANDLED_STREAM(symbol, name, since, variant, parameters, arguments) \
    CUresult(*symbol) parameters;                                               \
    CUresult(*symbol##_##variant) parameters;
#define NVML(symbol, parameters, arguments) nvmlReturn_t(*symbol) parameters;
#define DRIVER_CALL(symbol, parameters) CUresult(*symbol) parameters;
#define NVML_CALL(symbol, parameters) nvmlReturn_t(*symbol) parameters;
#include "hooks.def"
#include "driver_calls.def"
#undef GATED
#undef FILL
#undef BLOCKING
#undef HANDLED
#undef HANDLED_STREAM
#undef NVML
#undef RENAMED
#undef DRIVER_CALL
#undef NVML_CALL
};

extern struct real real __attribute__((visibility("hidden")));

/* Finds the driver's, or NVML's. Before that all are NULL. A hooked function that the driver lacks stays NULL; one of
 * driver_calls.def, which the library calls of its own accord, then answers CUDA_ERROR_NOT_SUPPORTED. */
void real_find(void);
void real_find_nvml(void);
CUresult real_missing(void);
#define REAL_HAS(symbol) ((void *)real.symbol != (void *)real_missing)
/* The functions without which launches cannot be gated and that the driver lacks, as text; NULL: it has them all. */
const char *real_lacks(void);
/* The C library's own dlsym. */
void *(*real_dlsym(void))(void *, const char *);
/* Whether an address belongs to the driver (libcuda) or to NVML. */
bool real_is_in_driver(const void *address);
/* A symbol of the driver by its full name. */
void *real_driver_symbol(const char *symbol);

#endif
