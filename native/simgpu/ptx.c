/* Reads from PTX what the model needs: the kernels' names and parameters, and the module's variables. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "module.h"

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static const char *word_end(const char *at)
{
    while (isalnum((unsigned char)*at) || *at == '_' || *at == '$' || *at == '%' || *at == '.')
        at++;
    return at;
}

/* Bytes of ".u64", ".b8", ".f32x2" and the like; 0 for a word that is no type. */
static uint32_t type_bytes(const char *word, size_t length)
{
    if (length < 3 || word[0] != '.' || !strchr("usbf", word[1]) || !isdigit((unsigned char)word[2]))
        return 0;
    return (uint32_t)strtoul(word + 2, NULL, 10) / 8;
}

/* One declaration such as ".param .align 8 .b8 name[24]": its element size, alignment, name and number of elements. */
struct declaration {
    const char *name;
    size_t name_length;
    uint32_t element, align, count;
};

static const char *read_declaration(const char *at, struct declaration *out)
{
    *out = (struct declaration){.count = 1};
    for (;;) {
        at = skip_space(at);
        const char *end = word_end(at);
        size_t length = (size_t)(end - at);
        if (length == 0)
            return at;
        if (*at != '.') {
            out->name = at;
            out->name_length = length;
            at = skip_space(end);
            if (*at == '[')
                out->count = (uint32_t)strtoul(at + 1, (char **)&at, 10);
            while (*at && *at != ',' && *at != ')' && *at != ';' && *at != '=')
                at++;
            return at;
        }
        if (length == 6 && strncmp(at, ".align", 6) == 0)
            out->align = (uint32_t)strtoul(end, (char **)&end, 10);
        else if (type_bytes(at, length))
            out->element = type_bytes(at, length);
        at = end;
    }
}

static bool read_params(struct function *function, const char *at)
{
    uint32_t offset = 0;
    while (*(at = skip_space(at)) && *at != ')') {
        struct declaration param;
        const char *before = at;
        at = read_declaration(at, &param);
        if (*at == ',')
            at++;
        if (at == before)
            return false;
        if (!param.name || !param.element)
            continue;
        uint32_t align = param.align ? param.align : param.element;
        uint32_t size = param.element * param.count;
        offset = (offset + align - 1) / align * align;
        struct param *grown = realloc(function->params, sizeof(*grown) * (size_t)(function->param_count + 1));
        if (!grown)
            return false;
        grown[function->param_count++] = (struct param){offset, size};
        function->params = grown;
        offset += size;
    }
    return true;
}

static bool read_entry(struct module *module, const char *at)
{
    at = skip_space(at);
    const char *end = word_end(at);
    struct function *function = new_function(module, at, (size_t)(end - at));
    if (!function)
        return false;
    function->params_known = true;
    end = skip_space(end);
    return *end == '(' ? read_params(function, end + 1) : true;
}

static void read_global(struct module *module, const char *at)
{
    struct declaration variable;
    read_declaration(at, &variable);
    struct global *global = variable.name && variable.element ? calloc(1, sizeof(*global)) : NULL;
    if (!global)
        return;
    global->name = strndup(variable.name, variable.name_length);
    global->size = (size_t)variable.element * (variable.count ? variable.count : 1);
    global->next = module->globals;
    module->globals = global;
}

bool ptx_parse(struct module *module, const char *text)
{
    const char *version = strstr(text, ".version"), *target = strstr(text, ".target");
    if (!version || !target)
        return false;
    module->is_ptx = true;
    for (const char *at = text; (at = strstr(at, ".entry")); at += 6)
        if (!read_entry(module, at + 6))
            return false;
    for (const char *at = text; (at = strstr(at, ".global")); at += 7) {
        /* A variable stands at the beginning of a statement; ".global" inside an instruction follows a letter. */
        bool in_instruction = at > text && isalnum((unsigned char)at[-1]);
        if (!in_instruction)
            read_global(module, at + 7);
    }
    return true;
}
