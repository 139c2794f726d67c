#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cancel.h"
#include "clock.h"
#include "settings.h"

#define LINES_PER_SECOND 20
#define BYTES_MAX ((unsigned __int128)INT64_MAX)

struct settings settings = {.managed = true};

/* ---- messages */

static bool may_print(void)
{
    static atomic_uint_fast64_t second;
    static atomic_int lines;
    uint64_t now_s = clock_ns() / 1000000000;
    if (atomic_exchange(&second, now_s) != now_s)
        atomic_store(&lines, 0);
    return atomic_fetch_add(&lines, 1) < LINES_PER_SECOND;
}

/* The program neither waits for the reader of standard error nor dies when it is gone: what cannot be written is dropped. */
static void write_line(const char *line, size_t length)
{
    struct pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT};
    sigset_t broken, before, pending;
    if (poll(&reader, 1, 0) != 1 || reader.revents != POLLOUT)
        return;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    bool is_ours = write(STDERR_FILENO, line, length) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE);
    while (is_ours && sigtimedwait(&broken, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void print_line(const char *format, va_list arguments)
{
    char line[512];
    int saved = errno, cancellable = cancel_hold();
    int length = snprintf(line, sizeof(line), "nvshare: ");
    int more = vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
    length = more < 0 ? length : length + more;
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    write_line(line, (size_t)length);
    cancel_restore(cancellable);
    errno = saved;
}

void say(const char *format, ...)
{
    if (!may_print())
        return;
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
}

void say_debug(const char *format, ...)
{
    if (!settings.debug || !may_print())
        return;
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
}

/* ---- the environment */

static int factor_of(const char *unit, uint64_t *factor)
{
    static const char letters[] = "KMGT";
    const char *at = *unit ? strchr(letters, *unit) : NULL;
    int used = at ? 1 : 0;
    uint64_t base = at && unit[1] == 'i' ? 1024 : 1000;
    *factor = 1;
    for (const char *step = letters; at && step <= at; step++)
        *factor *= base;
    if (base == 1024)
        used++;
    return unit[used] == 'B' ? used + 1 : used;
}

bool parse_bytes(const char *text, uint64_t *bytes)
{
    unsigned __int128 digits = 0, divisor = 1;
    int whole = 0, part = 0;
    for (; *text >= '0' && *text <= '9' && whole < 19; text++, whole++)
        digits = digits * 10 + (unsigned)(*text - '0');
    if (whole && *text == '.') {
        for (text++; *text >= '0' && *text <= '9' && part < 6; text++, part++) {
            digits = digits * 10 + (unsigned)(*text - '0');
            divisor *= 10;
        }
        if (part == 0)
            return false;
    }
    uint64_t factor;
    int unit = factor_of(text, &factor);
    if (whole == 0 || text[unit] || digits > BYTES_MAX * divisor / factor || digits * factor % divisor)
        return false;
    *bytes = (uint64_t)(digits * factor / divisor);
    return true;
}

static bool read_switch(const char *name, bool fallback)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    if (strcmp(text, "1") == 0 || strcmp(text, "true") == 0)
        return true;
    if (strcmp(text, "0") == 0 || strcmp(text, "false") == 0)
        return false;
    say("%s='%.64s' is not accepted; accepted: 0, 1, false, true; taken as %d", name, text, fallback);
    return fallback;
}

#define LEAST_LIMIT_BYTES (1 << 20)

static void read_memory_limit(void)
{
    const char *text = getenv("NVSHARE_GPU_MEMORY_LIMIT");
    if (!text || !*text)
        return;
    if (parse_bytes(text, &settings.memory_limit_bytes)) {
        if (settings.memory_limit_bytes && settings.memory_limit_bytes < LEAST_LIMIT_BYTES)
            say("NVSHARE_GPU_MEMORY_LIMIT='%.64s' is a limit of %llu bytes, too small for any program; did you mean %.64sGi?",
                text, (unsigned long long)settings.memory_limit_bytes, text);
        return;
    }
    say("NVSHARE_GPU_MEMORY_LIMIT='%.64s' is not accepted; accepted: a number with Ki, Mi, Gi, Ti or K, M, G, T, with or"
        " without B, or plain bytes; taken as no limit", text);
}

/* As configured, else the user's own daemon if there is one, else the machine's. */
static void find_socket(void)
{
    char *path = settings.socket_path;
    size_t size = sizeof(settings.socket_path);
    const char *configured = getenv("NVSHARE_SOCK_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    if (configured && *configured) {
        if (snprintf(path, size, "%s/scheduler.sock", configured) < (int)size)
            return;
        say("NVSHARE_SOCK_DIR='%.64s...' is not accepted; accepted: a path of at most 90 bytes; taken as"
            " /var/run/nvshare", configured);
    } else if (runtime && *runtime && geteuid() != 0) {
        if (snprintf(path, size, "%s/nvshare/scheduler.sock", runtime) < (int)size && access(path, F_OK) == 0)
            return;
    }
    snprintf(path, size, "/var/run/nvshare/scheduler.sock");
}

static void read_environment(void)
{
    settings.debug = read_switch("NVSHARE_DEBUG", false);
    settings.disabled = read_switch("NVSHARE_DISABLE", false);
    if (settings.disabled)
        return;
    settings.managed = read_switch("NVSHARE_MANAGED", true);
    settings.oversubscribe = read_switch("NVSHARE_ENABLE_SINGLE_OVERSUB", false);
    read_memory_limit();
    find_socket();
}

void settings_read(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
}
