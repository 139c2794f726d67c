/* What the files of a session share. */
#ifndef INTERPOSER_SESSION_MEMORY_H
#define INTERPOSER_SESSION_MEMORY_H

#include "session.h"

void session_send(struct session *s, const struct message *message, const struct identity *identity);
void session_notify(struct session *s, enum message_type type, uint64_t first, uint64_t second);
/* It was refused for lack of room and has a quota or a memory limit, which other processes of its pod may have used up. */
bool session_waits_for_room(const struct session *s);
void session_reserve_next(struct session *s);
void session_memory_resumed(struct session *s);
void session_decide_all(struct session *s);
void session_memory_received(struct session *s, const struct message *message, uint64_t now_ns);
uint64_t session_report_if_due(struct session *s, uint64_t now_ns);

#endif
