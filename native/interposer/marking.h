/* Markers: events behind the work of a lane, from which it is known how far the work has got, and how much of it may be in
 * flight. All with the gate's lock held. */
#ifndef INTERPOSER_MARKING_H
#define INTERPOSER_MARKING_H

#include "gate.h"

#pragma GCC visibility push(hidden)
void lane_passed(struct lane *lane, uint64_t now_ns);
/* Adds what was launched on credit. */
void lane_settle_credit(struct lane *lane, uint64_t now_ns);
/* How many launches more fit behind it without another look. */
uint64_t lane_credit(struct lane *lane);
bool lane_is_full(struct lane *lane, uint64_t now_ns);
/* Whether a marker on it would hold up the work of other streams. */
bool lane_is_barrier(const struct lane *lane);
/* Before the first launch on an idle stream: an event that is reached when the GPU gets to it. */
void lane_mark_start(struct lane *lane, uint64_t now_ns);
/* Behind all that was launched, whatever context is current. */
void lane_mark(struct lane *lane, uint64_t now_ns);
void lane_mark_if_due(struct lane *lane, uint64_t now_ns, bool launch_waits);
void lane_mark_launch(struct lane *lane, uint64_t now_ns);
void lane_mark_tail(struct lane *lane, uint64_t now_ns);
void lanes_mark_tails(struct gate *gate, uint64_t now_ns, uint64_t older_than_ns);
void lane_mark_at_wait(struct lane *lane, uint64_t now_ns);
void lanes_mark_at_wait(struct gate *gate, uint64_t now_ns);
void lanes_owner_waits(struct gate *gate, bool waits, uint64_t now_ns);
/* Passes are void; true if any had been used. */
bool lanes_make_dirty(struct gate *gate, uint64_t now_ns);
#pragma GCC visibility pop

#endif
