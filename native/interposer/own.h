/* The handlers of the functions that are not simply gated, as the table of hooks has them. */
#ifndef INTERPOSER_OWN_H
#define INTERPOSER_OWN_H

#include "../include/cuda_abi.h"
#include "../include/nvml_abi.h"

#define GATED(symbol, name, since, variant, stream, parameters, arguments)
#define BLOCKING(symbol, name, since, variant, parameters, arguments)
#define OWN(symbol, name, since, parameters, arguments) CUresult own_##symbol parameters;
#define OWN_STREAM(symbol, name, since, variant, parameters, arguments) CUresult own_##symbol parameters;
#define NVML(symbol, parameters, arguments) nvmlReturn_t own_##symbol parameters;
#include "hooks.def"
#undef GATED
#undef FILL
#undef BLOCKING
#undef OWN
#undef OWN_STREAM
#undef NVML

#endif
