/* The handlers of the functions that are not simply gated, as the table of hooks has them. */
#ifndef INTERPOSER_HANDLERS_H
#define INTERPOSER_HANDLERS_H

#include "../include/cuda_abi.h"
#include "../include/nvml_abi.h"

#define GATED(symbol, name, since, variant, stream, parameters, arguments)
#define BLOCKING(symbol, name, since, variant, parameters, arguments)
#define HANDLED(symbol, name, since, parameters, arguments) CUresult handle_##symbol parameters;
#define HANDLED_STREAM(symbol, name, since, variant, parameters, arguments) CUresult handle_##symbol parameters;
#define NVML(symbol, parameters, arguments) nvmlReturn_t handle_##symbol parameters;
#include "hooks.def"
#undef GATED
#undef FILL
#undef BLOCKING
#undef HANDLED
#undef HANDLED_STREAM
#undef NVML
#undef RENAMED

#endif
