/* The thread behind a gate, and the bill it keeps. */
#ifndef INTERPOSER_AGENT_H
#define INTERPOSER_AGENT_H

#include "gate.h"

#pragma GCC visibility push(hidden)
bool agent_start(struct gate *gate);
/* With the gate's lock held: GPU time begins to be used. */
void bill_begin(struct gate *gate, uint64_t now_ns);
/* With the gate's lock held, after a wait: reports the GPU time that would be lost if the program ended now. */
void bill_report_burst(struct gate *gate, uint64_t now_ns);
/* With the gate's lock held, when the program ends: reports the rest. */
void bill_report_last(struct gate *gate);
#pragma GCC visibility pop

#endif
