/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/trainer/progress.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/status.h"
#include "worker/trainer/human.h"

#define LIVE_US 200000u   /* between two live lines */
#define PLAIN_US 5000000u /* between two plain ones */
#define LOSS_WEIGHT 0.05  /* of the newest step */
#define SPEED_WEIGHT 0.3  /* of the newest interval */
#define LINE_CHARS 256
#define BOLD "\x1b[1m"
#define NORMAL "\x1b[0m"
#define CLEAR "\r\x1b[K"

/* A line that is put together piece by piece; what does not fit is left out. */
typedef struct {
    char text[LINE_CHARS];
    size_t len;
} line;

static void TERSE_PRINTF(2, 3) add(line *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(to->text + to->len, sizeof to->text - to->len, format, arguments);
    va_end(arguments);
    if (wrote > 0) to->len += (size_t)wrote;
    if (to->len >= sizeof to->text) to->len = sizeof to->text - 1;
}

/* Four decimals, or more for what would show as nothing. */
static void add_loss(line *to, const char *name, double loss) {
    if (loss > 0 && loss < 1e-3)
        add(to, "  %s %.2e", name, loss);
    else
        add(to, "  %s %.4f", name, loss);
}

void ts_progress_start(ts_progress *progress, const ts_progress_plan *plan, ts_terminal terminal, FILE *out,
                       uint64_t now_us) {
    char a[TS_HUMAN_CHARS], b[TS_HUMAN_CHARS];
    *progress = (ts_progress){.plan = *plan, .terminal = terminal, .out = out, .began_us = now_us, .shown_us = now_us,
                              .epoch_began_us = now_us, .steps = plan->first_step, .shown_steps = plan->first_step,
                              .accuracy = -1};
    fprintf(out, "training starts: %s, %s parameters, %u worker%s, %u server%s, %s steps", plan->model,
            ts_human_count(plan->parameters, a), plan->workers, plan->workers == 1 ? "" : "s", plan->servers,
            plan->servers == 1 ? "" : "s", ts_human_count(plan->total_steps, b));
    if (plan->steps_per_epoch) fprintf(out, " (%s an epoch)", ts_human_count(plan->steps_per_epoch, a));
    if (plan->first_step) fprintf(out, ", going on from step %llu", (unsigned long long)plan->first_step);
    fprintf(out, "\n");
    fflush(out);
}

bool ts_progress_step(ts_progress *progress, uint64_t steps, double loss, uint64_t now_us) {
    progress->loss = progress->steps == progress->plan.first_step ? loss : progress->loss + LOSS_WEIGHT * (loss - progress->loss);
    progress->steps = steps;
    return now_us - progress->shown_us >= (progress->terminal.live ? LIVE_US : PLAIN_US);
}

static void measure_speed(ts_progress *progress, uint64_t now_us) {
    if (now_us <= progress->shown_us || progress->steps == progress->shown_steps) return;
    double speed = (double)(progress->steps - progress->shown_steps) * 1e6 / (double)(now_us - progress->shown_us);
    progress->steps_per_s =
        progress->steps_per_s > 0 ? progress->steps_per_s + SPEED_WEIGHT * (speed - progress->steps_per_s) : speed;
    progress->shown_us = now_us;
    progress->shown_steps = progress->steps;
}

/* Position, in a width that does not jump: "epoch 3/8  step 512/1880". */
static void add_position(const ts_progress *progress, line *to) {
    const ts_progress_plan *plan = &progress->plan;
    if (plan->steps_per_epoch) {
        uint64_t epochs = (plan->total_steps - 1) / plan->steps_per_epoch + 1;
        uint64_t epoch = progress->steps ? (progress->steps - 1) / plan->steps_per_epoch + 1 : 1;
        add(to, "epoch %llu/%llu  ", (unsigned long long)epoch, (unsigned long long)epochs);
    }
    add(to, "step %llu/%llu", (unsigned long long)progress->steps, (unsigned long long)plan->total_steps);
}

static void add_rates(const ts_progress *progress, uint64_t bytes, line *to) {
    char text[TS_HUMAN_CHARS];
    const ts_progress_plan *plan = &progress->plan;
    add(to, "  %s samples/s", ts_human_count((uint64_t)(progress->steps_per_s * (double)plan->samples_per_step), text));
    double dense = (double)(progress->steps - progress->plan.first_step) * (double)plan->parameters * 8;
    if (bytes > 0) add(to, "  ratio %s", ts_human_times(dense / (double)bytes, text));
}

void ts_progress_show(ts_progress *progress, uint64_t bytes, uint64_t now_us) {
    line out = {.len = 0};
    char text[TS_HUMAN_CHARS];
    measure_speed(progress, now_us);
    add_position(progress, &out);
    add_loss(&out, "loss", progress->loss);
    if (progress->accuracy >= 0) add(&out, "  accuracy %.2f %%", 100 * progress->accuracy);
    add_rates(progress, bytes, &out);
    if (progress->steps_per_s > 0) {
        double left = (double)(progress->plan.total_steps - progress->steps) / progress->steps_per_s;
        add(&out, "  ETA %s", ts_human_clock(left, text));
    }
    if (progress->terminal.live) {
        /* The last column stays free: writing it makes some terminals break the line. */
        if (out.len >= progress->terminal.width) out.text[progress->terminal.width - 1] = 0;
        fprintf(progress->out, CLEAR "%s", out.text);
        progress->line_open = true;
    } else {
        fprintf(progress->out, "%s\n", out.text);
    }
    fflush(progress->out);
}

void ts_progress_epoch(ts_progress *progress, double loss, double accuracy, uint64_t bytes, uint64_t now_us) {
    line out = {.len = 0};
    char text[TS_HUMAN_CHARS];
    measure_speed(progress, now_us);
    progress->accuracy = accuracy;
    ts_progress_clear(progress);
    add_position(progress, &out);
    add_loss(&out, "mean loss", loss);
    if (accuracy >= 0) add(&out, "  test accuracy %.2f %%", 100 * accuracy);
    add_rates(progress, bytes, &out);
    add(&out, "  took %.1f s, %s in all", (double)(now_us - progress->epoch_began_us) / 1e6,
        ts_human_clock((double)(now_us - progress->began_us) / 1e6, text));
    const bool colour = progress->terminal.colour;
    fprintf(progress->out, "%s%s%s\n", colour ? BOLD : "", out.text, colour ? NORMAL : "");
    fflush(progress->out);
    progress->epoch_began_us = now_us;
}

void ts_progress_clear(ts_progress *progress) {
    if (!progress->line_open) return;
    fprintf(progress->out, CLEAR);
    fflush(progress->out);
    progress->line_open = false;
}
