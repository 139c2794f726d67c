/* How far the work behind a gate has got: which markers have been reached, and what queries show. All with the gate's lock
 * held. */
#ifndef INTERPOSER_WATCHING_H
#define INTERPOSER_WATCHING_H

#include "gate.h"

#pragma GCC visibility push(hidden)
void lane_launched(struct lane *lane, uint64_t now_ns);
/* For a stream that must not be marked: queries it instead. */
void lane_query_tail(struct lane *lane, uint64_t now_ns);
/* Looks at the markers of all the gate's lanes; true when nothing is behind it. */
bool lanes_poll(struct gate *gate, uint64_t now_ns);
/* Only those marked since then. */
void lanes_poll_since(struct gate *gate, uint64_t marked_ns, uint64_t now_ns);
/* The program has waited for all that is behind the lane. */
void lane_was_awaited(struct lane *lane, uint64_t now_ns);
/* While calls have passes: looks which lanes still work; when to look again. */
uint64_t lanes_watch(struct gate *gate, uint64_t now_ns);
/* When the lanes' work is expected to end. */
uint64_t lanes_expected_end_ns(struct gate *gate);
#pragma GCC visibility pop

#endif
