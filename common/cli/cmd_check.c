/* SPDX-License-Identifier: Apache-2.0 */
/* terse check CONFIG: refuses it with one sentence, or says what it means. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/cmd_check_plan.h"
#include "common/cli/commands.h"
#include "common/config/config.h"
#include "common/config/config_models.h"

static void print_help(void) {
    puts("usage: terse check CONFIG [--set KEY=VALUE]... [--servers N] [--workers N]\n"
         "                   [--placement [--shared-hosts]]\n"
         "       terse check --docs\n"
         "\n"
         "Checks a config as terse-server and terse-worker would, with the folders that it names, as they are on\n"
         "this host (checkpoint.dir, error_feedback.keep); nothing is made. Prints what it means: who does what,\n"
         "and for each rule its pipelines and where momentum is applied. Where the model's tensors are\n"
         "known (built-in models, `synthetic`), also what memory a server and a worker will take.\n"
         "\n"
         "  --set KEY=VALUE  overrides a key, as training.epochs=2; may be repeated\n"
         "  --servers N, --workers N  of the launch in mind: 2 (of a relay 1) and 4 when not given\n"
         "  --placement      each server's share: tensors, slices, work, traffic, memory, and the imbalance\n"
         "  --shared-hosts   servers run on the workers' hosts, workers dealt out in turn\n"
         "  --docs           prints configs/README.md, which is made from the table of keys\n"
         "  --help, --version\n"
         "\n"
         "Exit codes: 0 when the config is fine; 2 when it is not, with\n"
         "`FILE:LINE: KEY: \"VALUE\": what is wrong and what is allowed` on standard error.");
}

/* "name *.bias, at most 200000 elements" */
static void print_conditions(const ts_config_rule *rule) {
    const char *comma = "";
    if (rule->match) {
        printf("name %s", rule->match);
        comma = ", ";
    }
    const struct {
        const char *words, *unit;
        uint64_t bound;
    } bounds[] = {{"at least", "elements", rule->min_elems},
                  {"at most", "elements", rule->max_elems},
                  {"at least", "extents", rule->min_rank},
                  {"at most", "extents", rule->max_rank}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (bounds[i].bound == 0) continue;
        printf("%s%s %llu %s", comma, bounds[i].words, (unsigned long long)bounds[i].bound, bounds[i].unit);
        comma = ", ";
    }
    if (comma[0] == '\0') printf("every tensor");
}

static const char *momentum_place(const ts_config *config, const ts_pipeline *push) {
    if (config->optimizer.name != TS_OPTIMIZER_SGD) return "";
    if (ts_config_worker_momentum(config, push)) return "; momentum and weight decay at the workers";
    return config->optimizer.momentum > 0 || config->optimizer.weight_decay > 0
               ? "; momentum and weight decay at the servers" : "";
}

static void print_policy(const ts_config *config, const char *name, const ts_config_policy *policy, bool push) {
    for (unsigned i = 0; i < policy->rules_count; i++) {
        const ts_config_rule *rule = &policy->rules[i];
        printf("  %s rule %u (", name, i);
        print_conditions(rule);
        printf("): %s%s\n", rule->parsed.text, push ? momentum_place(config, &rule->parsed) : "");
    }
    printf("  %s of %s: %s%s\n", name, policy->rules_count ? "other tensors" : "every tensor", policy->parsed.text,
           push ? momentum_place(config, &policy->parsed) : "");
}

static void print_training(const ts_config *config) {
    if (config->worker.plugin) {
        printf("  model from %s", config->worker.plugin);
    } else {
        printf("  model %s", config->training.model);
    }
    if (strcmp(config->training.model, "synthetic") == 0) {
        printf(", tensors of %s", config->training.shapes);
    } else {
        printf(", data %s", config->training.data);
    }
    printf(", %u epochs, batch %u a worker, seed %llu\n", config->training.epochs, config->training.batch,
           (unsigned long long)config->training.seed);
}

static void print_summary(const ts_config *config) {
    char optimizer[512], feedback[512];
    ts_config_optimizer_text(config, optimizer, sizeof optimizer);
    ts_config_feedback_text(config, feedback, sizeof feedback);
    print_training(config);
    static const char *const modes[] = {"bsp", "ssp", "asp"};
    printf("  consistency %s, deadline %g s; slices of %llu elements\n", modes[config->consistency.mode],
           config->consistency.deadline_s,
           (unsigned long long)config->servers.slice_elems);
    printf("  optimizer: %s\n  error feedback: %s\n", optimizer, feedback);
    print_policy(config, "push", &config->push, true);
    print_policy(config, "pull", &config->pull, false);
}

/* A relay's file, and the other one that it reads: what goes over the link. */
static void print_above(const ts_config *config, const ts_config *above) {
    printf("  a relay sums what the workers of group %s push, and is a worker of group %s, by %s:\n", config->servers.group,
           above->servers.group, config->upstream.config);
    print_policy(above, "  its push", &above->push, false);
    print_policy(above, "  its pull", &above->pull, false);
}

static ts_config_tensor shape_at(const void *list, size_t i) {
    const ts_shape *shape = &((const ts_shapes *)list)->tensors[i];
    return (ts_config_tensor){shape->name, shape->shape, shape->ndim};
}

static void say_note(void *context, const char *text) {
    (void)context;
    printf("note: %s\n", text);
}

static uint64_t slices_of(const ts_config *config, const ts_shapes *shapes, uint32_t *at_worker) {
    uint64_t slices = 0;
    for (uint32_t i = 0; i < shapes->count; i++) {
        const ts_shape *shape = &shapes->tensors[i];
        const ts_pipeline *push = ts_config_pipeline(&config->push, shape->name, shape->shape, shape->ndim);
        slices += (shape->n - 1) / config->servers.slice_elems + 1;
        *at_worker += ts_config_worker_momentum(config, push);
    }
    return slices;
}

/* What is only known where the model's tensors are. */
static terse_status print_tensors(const ts_config *config, const ts_config *above, const ts_check_layout *layout) {
    ts_shapes shapes;
    ts_error error = {{0}};
    terse_status status = ts_config_tensors(config, &shapes, &error);
    if (status == TERSE_ENOTFOUND && !layout->placement) return TERSE_OK; /* only the worker knows them */
    if (status != TERSE_OK) {
        fprintf(stderr, "terse check: %s\n", error.text);
        return status;
    }
    uint32_t at_worker = 0;
    uint64_t slices = slices_of(config, &shapes, &at_worker);
    printf("  %u tensors, %llu parameters, %llu slices; momentum at the workers for %u tensors\n", shapes.count,
           (unsigned long long)shapes.parameters, (unsigned long long)slices, at_worker);
    ts_config_unused_rules(config, shape_at, &shapes, shapes.count, say_note, NULL);
    status = ts_check_print_plan(config, &shapes, layout);
    if (status == TERSE_OK && above) status = ts_check_print_relay(above, &shapes);
    ts_shapes_clear(&shapes);
    return status;
}

static int usage_error(const char *what) {
    fprintf(stderr, "terse check: %s\nusage: terse check CONFIG [--set KEY=VALUE]...\n", what);
    return TS_EXIT_CONFIG;
}

/* A count behind an option. */
static bool take_count(int argc, char **argv, int *at, uint32_t *count) {
    char *end = NULL;
    if (*at + 1 >= argc) return false;
    unsigned long value = strtoul(argv[++*at], &end, 10);
    if (*end != '\0' || value < 1 || value > 4096) return false;
    *count = (uint32_t)value;
    return true;
}

/* Takes this command's own options. what: [out] the word that is none of them, when there is one. */
static bool take_layout(int argc, char **argv, ts_check_layout *layout, const char **what) {
    for (int i = 1; i < argc; i++) {
        *what = argv[i];
        if (strcmp(argv[i], "--placement") == 0) layout->placement = true;
        else if (strcmp(argv[i], "--shared-hosts") == 0) layout->placement = layout->shared_hosts = true;
        else if (strcmp(argv[i], "--servers") == 0 && take_count(argc, argv, &i, &layout->servers)) continue;
        else if (strcmp(argv[i], "--workers") == 0 && take_count(argc, argv, &i, &layout->workers)) continue;
        else return false;
    }
    return true;
}

int ts_cmd_check(int argc, char **argv) {
    ts_command_line line;
    ts_error error = {{0}};
    if (ts_command_line_take(&argc, argv, &line, &error) != TERSE_OK) return usage_error(error.text);
    if (line.help) {
        print_help();
        return TS_EXIT_OK;
    }
    if (line.version) {
        printf("terse %s\n", TS_VERSION);
        return TS_EXIT_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--docs") == 0) {
        return ts_config_write_docs(stdout) == TERSE_OK ? TS_EXIT_OK : TS_EXIT_FAILED;
    }
    ts_check_layout layout = {.workers = 4};
    const char *word = NULL;
    if (!take_layout(argc, argv, &layout, &word)) {
        char what[160];
        bool counts = strcmp(word, "--servers") == 0 || strcmp(word, "--workers") == 0;
        snprintf(what, sizeof what, "%.80s: %s", word, counts ? "a number from 1 to 4096 belongs behind it"
                 : word[0] == '-' ? "no such option" : "one CONFIG at a time");
        return usage_error(what);
    }
    if (!line.config) return usage_error("which CONFIG?");
    ts_config *config = NULL, *above = NULL;
    terse_status status = ts_config_examine(line.config, line.overrides, line.override_count, &config, &error);
    if (status == TERSE_OK && config->upstream.config) {
        status = ts_config_load_above(config, line.config, &above, &error);
    }
    if (status == TERSE_OK && above && layout.servers > 1)
        status = ts_error_set(&error, TERSE_ECONFIG, "%s: upstream.config: a relay is the only server of its group; allowed: "
                              "--servers 1", line.config);
    if (status == TERSE_OK && config->servers.replicas > 0 && layout.servers == 1)
        status = ts_error_set(&error, TERSE_ECONFIG, "%s: servers.replicas: \"1\": a second server has to hold what the first one "
                              "holds; allowed: --servers 2 and more, or servers.replicas 0", line.config);
    if (layout.servers == 0) layout.servers = above ? 1 : 2;
    if (status == TERSE_OK) {
        printf("%s: fine\n", line.config);
        print_summary(config);
        if (above) print_above(config, above);
        status = print_tensors(config, above, &layout);
        ts_config_notes(config, say_note, NULL);
    } else {
        fprintf(stderr, "%s\n", error.text);
    }
    ts_config_free(above);
    ts_config_free(config);
    return status == TERSE_OK ? TS_EXIT_OK : status == TERSE_ENOMEM ? TS_EXIT_FAILED : TS_EXIT_CONFIG;
}
