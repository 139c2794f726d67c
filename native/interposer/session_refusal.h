/* What a process does when the daemon refuses it (rules 7 and 8 of session.h). */
#ifndef INTERPOSER_SESSION_REFUSAL_H
#define INTERPOSER_SESSION_REFUSAL_H

#include "session.h"

bool session_is_refused(const struct session *s);
/* A drained GPU, or a pod that is not known yet: the daemon will stop refusing without anybody's doing. */
bool session_ends_by_itself(const char *refusal);
/* The process tries again later. */
void session_defer(struct session *s, const struct message *message);
/* It is refused for another reason, which the answer states. */
void session_deny(struct session *s, const struct message *message);

#endif
