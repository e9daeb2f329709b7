/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/models/model_registry.h"

typedef const terse_model *(*plugin_fn)(void);

#define FIRST_ABI 1u /* its table ends where samples() is now */

/* A loaded plug-in, and its table as long as ours: what its own lacks is NULL. */
typedef struct {
    void *library;
    terse_model model;
} plugin_handle;

static terse_status check_table(const char *path, const terse_model *model, ts_error *error) {
    if (!model) return ts_error_set(error, TERSE_EUNSUPPORTED, "%s: " TERSE_MODEL_SYMBOL "() returned NULL", path);
    if (model->abi < FIRST_ABI || model->abi > TERSE_MODEL_ABI)
        return ts_error_set(error, TERSE_EUNSUPPORTED, "%s: built for model ABI %u, this terse-worker takes %u to %u: build "
                            "it again with this version's terse_model.h", path, model->abi, FIRST_ABI, TERSE_MODEL_ABI);
    const struct {
        bool there;
        const char *name;
    } wanted[] = {{model->name && *model->name, "name"},       {model->create != NULL, "create"},
                  {model->tensors != NULL, "tensors"},         {model->steps_per_epoch != NULL, "steps_per_epoch"},
                  {model->step != NULL, "step"},               {model->destroy != NULL, "destroy"}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!wanted[i].there)
            return ts_error_set(error, TERSE_EUNSUPPORTED, "%s: terse_model.%s is not set (only evaluate and samples may be NULL)",
                                path, wanted[i].name);
    return TERSE_OK;
}

terse_status ts_model_load(const char *path, const terse_model **model, void **handle, ts_error *error) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return ts_error_set(error, TERSE_EIO, "plug-in cannot be loaded: %s", dlerror());
    void *symbol = dlsym(library, TERSE_MODEL_SYMBOL);
    if (!symbol) {
        dlclose(library);
        return ts_error_set(error, TERSE_EUNSUPPORTED, "%s: does not export `const terse_model *" TERSE_MODEL_SYMBOL
                            "(void)` (see terse_model.h)", path);
    }
    plugin_fn plugin;
    memcpy(&plugin, &symbol, sizeof plugin); /* ISO C has no cast from object to function pointers; POSIX does */
    const terse_model *found = plugin();
    terse_status status = check_table(path, found, error);
    if (status != TERSE_OK) {
        dlclose(library);
        return status;
    }
    plugin_handle *loaded = ts_mem_calloc(1, sizeof *loaded);
    if (!loaded) {
        dlclose(library);
        return ts_error_set(error, TERSE_ENOMEM, "%s: out of memory", path);
    }
    loaded->library = library;
    memcpy(&loaded->model, found, found->abi == FIRST_ABI ? offsetof(terse_model, samples) : sizeof loaded->model);
    *model = &loaded->model;
    *handle = loaded;
    return TERSE_OK;
}

void ts_model_unload(void *handle) {
    plugin_handle *loaded = handle;
    if (!loaded) return;
    dlclose(loaded->library);
    ts_mem_free(loaded);
}
