/* The state directory: which one it is, and its files, whatever somebody else has put there. */
#ifndef SIMGPU_STATE_DIR_H
#define SIMGPU_STATE_DIR_H

#include <stdbool.h>
#include <stddef.h>

#define STATE_DIR_MAX 480 /* leaves room for the names inside it */

/* As asked for, else $NVSHARE_SIM_DIR, else one of this user's. Returns its length. */
int state_dir_choose(const char *wanted, char *dir, size_t size);
int state_dir_make(const char *dir);
/* A descriptor for openat; -1 without one, and `why` says what to do, or is empty if there is nothing. */
int state_dir_open(const char *dir, char *why, size_t size);
/* A regular file in it that belongs to us or to root; -1 without one, and `why` as above. */
int state_file_open(const char *dir, const char *name, int flags, char *why, size_t size);
/* Waits for the lock of a file, but not for ever. */
bool state_file_lock(int fd, const char *dir, char *why, size_t size);

#endif
