/* Which gates there are: one for each GPU that the process uses. */
#ifndef INTERPOSER_GATES_H
#define INTERPOSER_GATES_H

#include "gate.h"

#define MAX_GATES 64

#pragma GCC visibility push(hidden)
/* The gate of a device; NULL if it has none. The first call registers with the daemon. */
struct gate *gate_of_device(CUdevice device);
struct gate *gate_of_context(void);
/* The gate of a GPU this process uses already, by its UUID (any of them for NULL); NULL if it uses none. */
struct gate *gate_of_key(const char *key);
/* How many there are, and each of them; some may never have been used. */
int gates_count(void);
struct gate *gates_at(int number);
/* In a forked child. */
void gates_forget(void);
/* The program ends. */
void gates_report_last(void);
#pragma GCC visibility pop

#endif
