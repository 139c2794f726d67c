/* dlsym, so that programs that look up the driver's functions find ours.
 *
 * 1. A name that is not ours goes to the real dlsym by a jump: it sees its caller's return address, which is how it knows what
 *    RTLD_NEXT and RTLD_DEFAULT mean. For these two that is also right for our own names: we are where the loader put us.
 * 2. One of our names, looked up in the driver by a handle, is answered with our function.
 * 3. It exists under every version that glibc has had: programs ask for one of them by name.
 * 4. A sanitizer's run-time calls it before it is ready itself. So this file is never built with one, and for foreign names
 *    calls nothing but dlvsym.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hooks.h"
#include "real.h"
#include "settings.h"
#include "start.h"

typedef void *(*dlsym_function)(void *, const char *);

struct answer_or_jump {
    void *answer;
    dlsym_function jump; /* NULL: answer */
};

/* dlvsym is public, and not one of the functions we stand before; that is why it can find the real dlsym. */
dlsym_function real_dlsym(void)
{
    static dlsym_function _Atomic found;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    dlsym_function function = found;
    for (size_t i = 0; !function && i < sizeof(versions) / sizeof(versions[0]); i++)
        *(void **)&function = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    found = function;
    return function;
}

static bool begins_with(const char *text, const char *start)
{
    while (*start && *text == *start) {
        text++;
        start++;
    }
    return !*start;
}

__attribute__((used, visibility("hidden"))) struct answer_or_jump nvshare_dlsym(void *handle, const char *name)
{
    struct answer_or_jump to_real = {NULL, real_dlsym()};
    if (!name || handle == RTLD_NEXT || handle == RTLD_DEFAULT)
        return to_real;
    if (!begins_with(name, "cu") && !begins_with(name, "nvml"))
        return to_real;
    void *ours = hook_of_symbol(name);
    if (!ours || !library_is_on())
        return to_real;
    void *found = to_real.jump(handle, name); /* with a handle, the answer does not depend on the caller */
    return (struct answer_or_jump){real_is_in_driver(found) ? ours : found, NULL};
}

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
__asm__(".text\n"
        ".macro DLSYM name\n"
        ".globl \\name\n"
        ".type \\name, @function\n"
        "\\name:\n"
        "    .cfi_startproc\n"
        "    push %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    push %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    sub $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call nvshare_dlsym\n"
        "    add $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    test %rdx, %rdx\n"
        "    jz 1f\n"
        "    jmp *%rdx\n"
        "1:  ret\n"
        "    .cfi_endproc\n"
        ".size \\name, . - \\name\n"
        ".endm\n");
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
__asm__(".text\n"
        ".macro DLSYM name\n"
        ".globl \\name\n"
        ".type \\name, %function\n"
        "\\name:\n"
        "    .cfi_startproc\n"
        "    stp x29, x30, [sp, #-32]!\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset 29, -32\n"
        "    .cfi_offset 30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl nvshare_dlsym\n"
        "    mov x16, x1\n"
        "    mov x17, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_def_cfa_offset 0\n"
        "    cbz x16, 1f\n"
        "    br x16\n"
        "1:  mov x0, x17\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size \\name, . - \\name\n"
        ".endm\n");
#else
#error "dlsym needs its few lines of assembler for this processor"
#endif

#ifdef __x86_64__
__asm__("DLSYM nvshare_dlsym_2_2_5\n"
        ".symver nvshare_dlsym_2_2_5, dlsym@GLIBC_2.2.5\n");
#endif
__asm__("DLSYM nvshare_dlsym_2_17\n"
        ".symver nvshare_dlsym_2_17, dlsym@GLIBC_2.17\n"
        "DLSYM nvshare_dlsym_2_34\n"
        ".symver nvshare_dlsym_2_34, dlsym@@GLIBC_2.34\n");
