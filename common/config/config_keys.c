/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config_keys.h"

#include <string.h>

#include "common/base/log.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define AT(member) offsetof(ts_config, member)
#define NAMES(array) .names = (array), .names_count = COUNT(array)
#define ANY_U64 .low = 0, .high = UINT64_MAX

static const cyaml_strval_t data_names[] = {{"fashion-mnist", 0}, {"none", 1}};
static const cyaml_strval_t mode_names[] = {{"bsp", TS_MODE_BSP}, {"ssp", TS_MODE_SSP}, {"asp", TS_MODE_ASP}};
static const cyaml_strval_t straggler_names[] = {
    {"wait", TS_STRAGGLERS_WAIT}, {"proceed", TS_STRAGGLERS_PROCEED}, {"backup", TS_STRAGGLERS_BACKUP}};
static const cyaml_strval_t loss_names[] = {{"go_on", TS_LOSS_GO_ON}, {"end", TS_LOSS_END}};
static const cyaml_strval_t late_names[] = {{"return", TS_LATE_RETURN}, {"apply", TS_LATE_APPLY}};
static const cyaml_strval_t optimizer_names[] = {
    {"sgd", TS_OPTIMIZER_SGD},   {"adagrad", TS_OPTIMIZER_ADAGRAD}, {"rmsprop", TS_OPTIMIZER_RMSPROP},
    {"adam", TS_OPTIMIZER_ADAM}, {"adamw", TS_OPTIMIZER_ADAMW},     {"lamb", TS_OPTIMIZER_LAMB},
    {"none", TS_OPTIMIZER_NONE}};
static const cyaml_strval_t aggregate_names[] = {
    {"mean", TS_AGGREGATE_MEAN}, {"samples", TS_AGGREGATE_SAMPLES}, {"sum", TS_AGGREGATE_SUM}};
static const cyaml_strval_t robust_names[] = {{"none", TS_ROBUST_NONE},
                                              {"median", TS_ROBUST_MEDIAN},
                                              {"trimmed", TS_ROBUST_TRIMMED},
                                              {"clip", TS_ROBUST_CLIP}};
static const cyaml_strval_t schedule_names[] = {
    {"constant", TS_SCHEDULE_CONSTANT}, {"step", TS_SCHEDULE_STEP}, {"cosine", TS_SCHEDULE_COSINE}};
static const cyaml_strval_t variant_names[] = {
    {"classic", TS_FEEDBACK_CLASSIC}, {"decayed", TS_FEEDBACK_DECAYED}, {"ef21", TS_FEEDBACK_EF21}};
static const cyaml_strval_t residual_names[] = {{"fp32", TS_RESIDUAL_FP32}, {"bf16", TS_RESIDUAL_BF16}};
static const cyaml_strval_t nonfinite_names[] = {
    {"error", TS_NONFINITE_ERROR}, {"skip", TS_NONFINITE_SKIP}, {"zero", TS_NONFINITE_ZERO}};
static const cyaml_strval_t resume_names[] = {{"auto", 0}, {"never", 1}}; /* or a path */
static const cyaml_strval_t when_empty_names[] = {{"wait", TS_WHEN_EMPTY_WAIT}, {"exit", TS_WHEN_EMPTY_EXIT}};
static const cyaml_strval_t level_names[] = {
    {"error", TS_LOG_ERROR}, {"warn", TS_LOG_WARN}, {"info", TS_LOG_INFO}, {"debug", TS_LOG_DEBUG}};

const ts_config_section ts_config_sections[] = {
    {"training", "What terse-worker trains, and how long. A program of your own reads of it what it likes."},
    {"worker", "The worker program."},
    {"job", "The job that the workers of this file are. Workers of one mpirun that name different jobs train independently on the "
            "same servers."},
    {"servers", "How parameters lie on the servers."},
    {"consistency", "When a round closes, and how long anybody waits."},
    {"optimizer", "What the servers do with the average of the gradients."},
    {"optimizer.schedule", "How the learning rate changes over the steps."},
    {"aggregation", "How the workers' gradients become the one that the optimizer sees. A sparse push says 0 of what it "
                    "leaves out. A push that holds NaN or infinity is left out of the round and counted, and the log names "
                    "the worker."},
    {"error_feedback", "What a worker does with the part of a gradient that was not sent."},
    {"error_feedback.warmup", "Sending more in the first steps, when gradients change fastest."},
    {"push", "Pipelines from the workers to the servers."},
    {"pull", "Pipelines from the servers to the workers, over parameters minus reference; `dense` sends all parameters, `exact` "
             "(with any index and byte packs) those whose bits have changed, as they are."},
    {"auth", "Who may attach. Make a secret by `(umask 077; head -c 32 /dev/urandom | base64 > secret)`. Messages themselves are "
             "neither encrypted nor signed."},
    {"upstream", "Hierarchy: a relay sums what its group's workers push, and pushes that to the servers above."},
    {"limits", "What a peer may make this process hold. A larger message is dropped and counted."},
    {"daemon", "Servers that were started without workers (`terse start`), and the jobs that join them."},
    {"checkpoint", "What a job can be gone on from, bit for bit: parameters, optimizer, every worker's residual and place in "
                   "the data, all at one step (`proto/CHECKPOINT.md`). Also written at SIGUSR1, and at SIGTERM, which then "
                   "ends the job. `terse ckpt` looks at them."},
    {"http", "Accepted for files that are shared with later versions; not in this version."},
    {"log", "Messages on standard error."},
};
const unsigned ts_config_sections_count = COUNT(ts_config_sections);

const ts_config_key ts_config_keys[] = {
    {"training.model", TS_KEY_TEXT, AT(training.model), "mlp",
     .doc = "Model: `softmax`, `mlp`, `cnn`, `synthetic` (tensors from a list, no computing), or any name with "
            "`worker.plugin`."},
    {"training.data", TS_KEY_CHOICE, AT(training.data), "fashion-mnist", NAMES(data_names), .doc = "Data set."},
    {"training.data_dir", TS_KEY_PATH, AT(training.data_dir), "/usr/share/datasets/fashion-mnist",
     .doc = "Folder with the data set's four .gz files."},
    {"training.shapes", TS_KEY_PATH, AT(training.shapes), NULL,
     .doc = "File for model `synthetic`: a tensor a line, its name and its extents, as `conv1.weight 64 3 7 7`."},
    {"training.epochs", TS_KEY_U32, AT(training.epochs), "8", .low = 1, .high = 1000000,
     .doc = "How often the training data is gone through."},
    {"training.batch", TS_KEY_U32, AT(training.batch), "64", .low = 1, .high = 1000000, .unit = "samples",
     .doc = "Samples a step, for each worker."},
    {"training.seed", TS_KEY_U64, AT(training.seed), "1", ANY_U64,
     .doc = "Seed of initial parameters, order of the data and every random choice of the pipelines."},
    {"training.max_steps", TS_KEY_U64, AT(training.max_steps), "0", ANY_U64, .unit = "steps",
     .doc = "Ends the run after so many steps; 0: as many as the epochs give."},
    {"training.threads", TS_KEY_U32, AT(training.threads), "1", .low = 1, .high = 1024,
     .doc = "Threads of the linear algebra, for each worker."},
    {"training.first_worker", TS_KEY_U32, AT(training.first_worker), "0", .low = 0, .high = 1000000,
     .doc = "With relays: this job's worker 0 is that one of `training.all_workers`, who share the data."},
    {"training.all_workers", TS_KEY_U32, AT(training.all_workers), "0", .low = 0, .high = 1000000, .unit = "workers",
     .doc = "With relays: workers of all groups together; 0: those of this job are all there are."},

    {"worker.plugin", TS_KEY_PATH, AT(worker.plugin), NULL, .doc = "A model of your own: path of its `.so`."},
    {"worker.id", TS_KEY_TEXT, AT(worker.id), "new",
     .doc = "`new`: the launch is a job of its own. A number comes into the running job of this `job.name` as that worker, which "
            "was lost, or as the next new one; `any` as the first lost one whose residual lies on this host, else the lowest lost "
            "one, else one more (`limits.workers`). Several, as `1,3`: rank by rank. `terse-worker --worker-id` sets it."},

    {"job.name", TS_KEY_TEXT, AT(job.name), "default",
     .doc = "Its name: 1 to 31 letters, digits, `.`, `_` and `-`."},
    {"job.memory_bytes", TS_KEY_U64, AT(job.memory_bytes), "0", ANY_U64, .unit = "bytes",
     .doc = "Memory that a server may take for the job's arrays, packet log and work; a job that needs more is refused when "
            "it attaches. 0: what `limits.job_bytes` of the servers allows."},

    {"servers.group", TS_KEY_TEXT, AT(servers.group), "default",
     .doc = "With relays: the group that a server or relay serves and its workers belong to; 1 to 31 characters."},
    {"servers.slice_elems", TS_KEY_U64, AT(servers.slice_elems), "262144", .low = 1, .high = 1u << 26,
     .unit = "elements", .doc = "Tensors are cut into slices of so many elements; servers share out slices."},
    {"servers.replicas", TS_KEY_U32, AT(servers.replicas), "0", .low = 0, .high = 1,
     .doc = "1: a second server, the next one, holds each slice, too, and takes over when the first one dies: nothing that was "
            "acknowledged is lost, and the job goes on. Takes twice the servers' memory and work, and two servers at least. "
            "With `consistency.mode` `bsp` and `consistency.stragglers` `wait`, without relays. Then `checkpoint.dir` must be one "
            "folder for all servers. Workers come back and in as without it, but no further ones with `error_feedback.variant` "
            "`ef21`. A daemon goes on when one has died, for new processes and new jobs, too."},
    {"servers.history", TS_KEY_U32, AT(servers.history), "16", .low = 1, .high = 1024, .unit = "packets",
     .doc = "Pull packets of each slice kept for workers that are behind; older ones get a snapshot."},

    {"consistency.mode", TS_KEY_ENUM, AT(consistency.mode), "bsp", NAMES(mode_names),
     .doc = "`bsp`: a round closes when all workers have pushed. `ssp`: no rounds; each push is an optimizer step with "
            "lr / workers, and no worker gets more than `consistency.staleness` steps ahead of the slowest. `asp`: the "
            "same without a bound. The schedule's clock is then the pushes so far / workers, and `rounds=` in the log the "
            "versions that were made, one when somebody pulls what has changed."},
    {"consistency.staleness", TS_KEY_U32, AT(consistency.staleness), "0", .low = 0, .high = 1000000, .unit = "steps",
     .doc = "Bound of `ssp`: how many steps a worker may be ahead of the slowest; 0 is lockstep."},
    {"consistency.deadline_s", TS_KEY_F64, AT(consistency.deadline_s), "30", .low_real = 0.001,
     .high_real = 1e6, .unit = "seconds",
     .doc = "Whoever is silent for so long is taken for dead: a worker is given up (`consistency.on_worker_loss`), for a server the job "
            "ends with a message that names it."},
    {"consistency.start_s", TS_KEY_F64, AT(consistency.start_s), "30", .low_real = 0.001, .high_real = 1e6,
     .unit = "seconds",
     .doc = "How long processes wait for each other at the start: in `MPI_Init` (which gets 4 s more), in the roll call, when they "
            "join a daemon, and until the parameters have their first values. Never less than `consistency.deadline_s`. So a "
            "deadline of a second bounds rounds, and a slow start is none of its business."},
    {"consistency.on_worker_loss", TS_KEY_ENUM, AT(consistency.on_worker_loss), "go_on", NAMES(loss_names),
     .doc = "A worker of which nothing is heard for `consistency.deadline_s`, or whose process has ended: `go_on` without it, "
            "as long as there are others; averages are then over those who are left. `end`: the job ends and says who, as "
            "it does in any case before the parameters have their first values. The servers' config counts."},
    {"consistency.stragglers", TS_KEY_ENUM, AT(consistency.stragglers), "wait", NAMES(straggler_names),
     .doc = "Slow workers in `bsp`. `wait`: a round waits for all. `proceed`: it closes with at least "
            "`consistency.quorum` workers once `consistency.straggler_s` have passed since the first had pushed. "
            "`backup`: with the first `consistency.quorum`. Server 0 decides who is in. A worker that was left out goes "
            "on with the newest round."},
    {"consistency.quorum", TS_KEY_U32, AT(consistency.quorum), "0", .low = 0, .high = 1000000, .unit = "workers",
     .doc = "How many are enough, with `proceed` and `backup`; fewer when fewer still push."},
    {"consistency.straggler_s", TS_KEY_F64, AT(consistency.straggler_s), "1", .low_real = 0, .high_real = 1e6,
     .unit = "seconds", .doc = "With `proceed`: how long a round waits for the others."},
    {"consistency.late", TS_KEY_ENUM, AT(consistency.late), "return", NAMES(late_names),
     .doc = "A push whose round was closed without it: `return`: back into the worker's residual (lost without error "
            "feedback). `apply`: into the round that is open, as if it were pushed for it."},

    {"optimizer.name", TS_KEY_ENUM, AT(optimizer.name), "sgd", NAMES(optimizer_names),
     .doc = "As PyTorch computes them, dense: elements without a gradient decay, too. `sgd` without momentum and decay, "
            "and `adagrad` without decay, touch only what was pushed. `lamb` (You et al. 2020) keeps every tensor whole on "
            "one server. `none`: pulls carry the averaged gradient, and the optimizer stays in the worker's code."},
    {"optimizer.lr", TS_KEY_F64, AT(optimizer.lr), "0.05", .low_real = 0, .high_real = 1e6,
     .doc = "Learning rate. Default with `adam`, `adamw`, `lamb` 0.001, with `adagrad`, `rmsprop` 0.01."},
    {"optimizer.momentum", TS_KEY_F64, AT(optimizer.momentum), "0.9", .low_real = 0, .high_real = 1, .high_open = true,
     .doc = "Momentum at the servers, with `sgd` (see `error_feedback.momentum_correction` for sparse tensors) and "
            "`rmsprop` (default there 0)."},
    {"optimizer.weight_decay", TS_KEY_F64, AT(optimizer.weight_decay), "0", .low_real = 0, .high_real = 1e6,
     .doc = "L2 term: this times the parameter is added to its gradient. Default with `adamw`, `lamb` 0.01."},
    {"optimizer.decoupled_weight_decay", TS_KEY_BOOL, AT(optimizer.decoupled_weight_decay), "false",
     .doc = "Instead of the L2 term, parameters shrink by lr times weight_decay before the step. Always so with `adamw`; "
            "`lamb` adds its decay to the direction."},
    {"optimizer.nesterov", TS_KEY_BOOL, AT(optimizer.nesterov), "false", .doc = "Nesterov's momentum, with `sgd`."},
    {"optimizer.beta1", TS_KEY_F64, AT(optimizer.beta1), "0.9", .low_real = 0, .high_real = 1, .high_open = true,
     .doc = "Decay of the gradient's average, with `adam`, `adamw`, `lamb`; with bias correction."},
    {"optimizer.beta2", TS_KEY_F64, AT(optimizer.beta2), "0.999", .low_real = 0, .high_real = 1, .high_open = true,
     .doc = "Decay of the squares' average, with `adam`, `adamw`, `lamb`; with bias correction."},
    {"optimizer.alpha", TS_KEY_F64, AT(optimizer.alpha), "0.99", .low_real = 0, .high_real = 1, .high_open = true,
     .doc = "Decay of the squares' average, with `rmsprop`."},
    {"optimizer.centered", TS_KEY_BOOL, AT(optimizer.centered), "false",
     .doc = "With `rmsprop`: divide by an estimate of the variance; one more array of memory."},
    {"optimizer.eps", TS_KEY_F64, AT(optimizer.eps), "1e-08", .low_real = 1e-30, .high_real = 1e6,
     .doc = "Added to the root of the squares. Default with `adagrad` 1e-10, with `lamb` 1e-06."},
    {"optimizer.clip_value", TS_KEY_F64, AT(optimizer.clip_value), "0", .low_real = 0, .high_real = 1e30,
     .doc = "Elements of the aggregate are clamped to plus and minus this. 0: off."},
    {"optimizer.clip_norm", TS_KEY_F64, AT(optimizer.clip_norm), "0", .low_real = 0, .high_real = 1e30,
     .doc = "Each tensor's aggregate is scaled down to this norm. 0: off. Tensors then stay whole on one server."},
    {"optimizer.schedule.name", TS_KEY_ENUM, AT(optimizer.schedule.name), "constant", NAMES(schedule_names),
     .doc = "`step`: times gamma every so many steps. `cosine`: from lr down to min_lr over all steps."},
    {"optimizer.schedule.warmup_steps", TS_KEY_U64, AT(optimizer.schedule.warmup_steps), "0", ANY_U64,
     .unit = "steps", .doc = "The rate rises linearly to lr in so many steps first."},
    {"optimizer.schedule.every_steps", TS_KEY_U64, AT(optimizer.schedule.every_steps), "0", ANY_U64,
     .unit = "steps", .doc = "For `step`: how often the rate is multiplied; must be given then."},
    {"optimizer.schedule.gamma", TS_KEY_F64, AT(optimizer.schedule.gamma), "0.1", .low_real = 0, .low_open = true,
     .high_real = 1, .doc = "For `step`: the factor."},
    {"optimizer.schedule.min_lr", TS_KEY_F64, AT(optimizer.schedule.min_lr), "0", .low_real = 0, .high_real = 1e6,
     .doc = "For `cosine`: the rate at the end; at most lr."},

    {"aggregation.mode", TS_KEY_ENUM, AT(aggregation.mode), "mean", NAMES(aggregate_names),
     .doc = "`mean` over the workers of a round; `samples`: the mean weighted by the samples that each worker says "
            "(terse-worker asks its model; others `terse_set_samples`; 1 when nothing is said); `sum`."},
    {"aggregation.robust", TS_KEY_ENUM, AT(aggregation.robust), "none", NAMES(robust_names),
     .doc = "`median`: of each coordinate, the mean of the two in the middle when their number is even. `trimmed`: the mean "
            "of each coordinate without its lowest and highest values. `clip`: each worker's gradient of a tensor is scaled "
            "down to `aggregation.clip_norm` first; tensors then stay whole on one server. `median` and `trimmed` want "
            "mode `mean`."},
    {"aggregation.trim", TS_KEY_F64, AT(aggregation.trim), "0.1", .low_real = 0, .high_real = 0.5, .high_open = true,
     .doc = "With `trimmed`: the part of the workers left out at each end, rounded down to whole workers."},
    {"aggregation.clip_norm", TS_KEY_F64, AT(aggregation.clip_norm), "1", .low_real = 0, .low_open = true,
     .high_real = 1e30, .doc = "With `clip`: the largest norm of one worker's gradient of one tensor."},

    {"error_feedback.enabled", TS_KEY_BOOL, AT(error_feedback.enabled), "true",
     .doc = "Keep what was not sent, with the rounding of what was, and add it to the next gradient. `false` loses "
            "it and switches momentum correction off too; pushes that are drawn by chance (`bernoulli`, `magnitude`, "
            "`randomk`, `qsgd`, `ternary`, `natural`) then have the gradient as their expectation."},
    {"error_feedback.variant", TS_KEY_ENUM, AT(error_feedback.variant), "classic", NAMES(variant_names),
     .doc = "`classic` keeps what was not sent; `decayed` keeps `error_feedback.beta` of it from step to step; `ef21` "
            "sends the compressed difference to an estimate of the gradient, and the servers use the estimates' mean."},
    {"error_feedback.beta", TS_KEY_F64, AT(error_feedback.beta), "0.9", .low_real = 0, .low_open = true, .high_real = 1,
     .doc = "With variant `decayed`: what the residual is multiplied by in every step."},
    {"error_feedback.residual", TS_KEY_ENUM, AT(error_feedback.residual), "fp32", NAMES(residual_names),
     .doc = "How the residual is stored between steps; `bf16` halves its memory and loses its rounding."},
    {"error_feedback.keep", TS_KEY_TEXT, AT(keep), "auto",
     .doc = "A folder on tmpfs (`/dev/shm/NAME`) for residuals, momentum and packets under way, in a file that outlives the "
            "process: a worker that is killed and started again there goes on from it, and nothing is lost. A file of another "
            "start of the servers that still holds something is refused (`terse ckpt keep`), unless nobody could go on from it: its "
            "job let nobody in and made no checkpoints, or has ended. `off`: on the heap. `auto`: `off`, since a folder of the "
            "user's choice is not to be written to unasked."},
    {"error_feedback.momentum_correction", TS_KEY_F64, AT(error_feedback.momentum_correction), "0", .low_real = 0,
     .high_real = 1, .high_open = true,
     .doc = "Momentum at the worker, before the selection, for sparsely pushed tensors; the servers then run plain "
            "SGD for those. 0: off. Only with optimizer `sgd`."},
    {"error_feedback.masking", TS_KEY_BOOL, AT(error_feedback.masking), "true",
     .doc = "With momentum correction: clear the momentum of what was sent."},
    {"error_feedback.flush", TS_KEY_BOOL, AT(flush), "false",
     .doc = "Push what is left of the residual before this worker leaves while others go on: up to 16 pushes of all that the "
            "pipeline can say, until a 10,000th of it is left. SIGTERM to a worker then means that it leaves, and the job goes "
            "on, where `checkpoint.dir` is not set. `false`: what is left is lost, and reported as such. Not with `ef21`."},
    {"error_feedback.clip_norm", TS_KEY_F64, AT(error_feedback.clip_norm), "0", .low_real = 0, .high_real = 1e30,
     .doc = "Clip the gradient's norm over all tensors, at each worker to this / sqrt(workers). 0: off."},
    {"error_feedback.nonfinite", TS_KEY_ENUM, AT(error_feedback.nonfinite), "error", NAMES(nonfinite_names),
     .doc = "NaN or infinity in a gradient: `error` ends the job, `skip` leaves the tensor's gradient out of this "
            "step, `zero` leaves those elements out. They never enter the residual."},
    {"error_feedback.warmup.steps", TS_KEY_U64, AT(error_feedback.warmup.steps), "0", ANY_U64, .unit = "steps",
     .doc = "Length of the warm-up of the ratio; 0: none."},
    {"error_feedback.warmup.from", TS_KEY_F64, AT(error_feedback.warmup.from), "0.25", .low_real = 0,
     .low_open = true, .high_real = 1,
     .doc = "Ratio at step 0; from there exponentially down to each pipeline's own."},

    {"push.default", TS_KEY_PIPELINE, AT(push.default_pipeline), "dense", .doc = "For tensors that no rule matches."},
    {"push.rules", TS_KEY_RULES, AT(push.rules), NULL, .doc = "List of rules; the first that matches counts."},
    {"pull.default", TS_KEY_PIPELINE, AT(pull.default_pipeline), "dense", .doc = "For tensors that no rule matches."},
    {"pull.rules", TS_KEY_RULES, AT(pull.rules), NULL, .doc = "List of rules; the first that matches counts."},

    {"auth.secret_file", TS_KEY_PATH, AT(auth.secret_file), NULL,
     .doc = "A file of mode 0600 with a secret of 16 to 4096 bytes, the same at servers and workers. Each side proves to the "
            "other that it knows it before anything else is said; the secret itself never travels."},

    {"upstream.config", TS_KEY_PATH, AT(upstream.config), NULL,
     .doc = "Of `terse-relay`: the config with which it is a worker of the servers above (their `servers.group`, the pipelines "
            "and error feedback of the link between). A relay is the only server of its group and runs one job, in `bsp`; "
            "neither it nor the servers above it write checkpoints."},

    {"limits.frame_bytes", TS_KEY_U64, AT(limits.frame_bytes), "67108864", .low = 65544, .high = 1u << 30,
     .unit = "bytes", .doc = "Largest message. A slice must fit: at least 8 times servers.slice_elems + 65536."},
    {"limits.window_bytes", TS_KEY_U64, AT(limits.window_bytes), "16777216", .low = 65536, .high = (uint64_t)1 << 40,
     .unit = "bytes", .doc = "Bytes that one peer may have under way to this process; the sender waits beyond it."},
    {"limits.traffic_bytes", TS_KEY_U64, AT(limits.traffic_bytes), "2147483648", .low = 4096, .high = (uint64_t)1 << 50,
     .unit = "bytes",
     .doc = "Messages that a server holds for all its workers: under way, waiting for their round, queued for a worker. "
            "Jobs share it alike, and so do the workers of a job. A push beyond it is refused and comes again; a worker that "
            "does not read gets its answers when it does. Both are counted, and the log names the worker. Where rounds do "
            "not wait for stragglers, a worker's packets of one round are always taken."},
    {"limits.tensors", TS_KEY_U64, AT(limits.tensors), "65536", .low = 1, .high = 1u << 20,
     .doc = "Largest number of tensors of a job."},
    {"limits.workers", TS_KEY_U32, AT(limits.workers), "64", .low = 0, .high = 65536,
     .doc = "New workers may come into a running job of a daemon (`terse-worker --worker-id any`) until it has so many, those that "
            "were lost included. A job that begins with more is not refused."},
    {"limits.jobs", TS_KEY_U32, AT(limits.jobs), "16", .low = 1, .high = 1024,
     .doc = "Jobs that the servers run at the same time; more are refused."},
    {"limits.job_bytes", TS_KEY_U64, AT(limits.job_bytes), "0", ANY_U64, .unit = "bytes",
     .doc = "Memory that a server takes for one job's arrays, packet log and work; a job that needs more is refused. 0: no "
            "limit."},

    {"daemon.dir", TS_KEY_PATH, AT(daemon.dir), NULL,
     .doc = "Run directory, by which workers find the servers; must be the user's own, with mode 0700. When not given: "
            "`run/NAME` in the current directory, NAME being the config file's name without its ending."},
    {"daemon.when_empty", TS_KEY_ENUM, AT(daemon.when_empty), "wait", NAMES(when_empty_names),
     .doc = "When the last job has ended: `wait` for the next, or `exit`."},
    {"daemon.drain_s", TS_KEY_F64, AT(daemon.drain_s), "10", .low_real = 0, .high_real = 86400, .unit = "seconds",
     .doc = "After SIGTERM nobody is let in; jobs that have not ended by themselves within this time are ended."},
    {"daemon.orphan_s", TS_KEY_F64, AT(daemon.orphan_s), "300", .low_real = 0, .high_real = 1e9, .unit = "seconds",
     .doc = "A job of which all workers have died without a goodbye is kept so long, so that they can come back (`terse-worker "
            "--worker-id`), unless a new job needs its place (`limits.jobs`). 0: it ends with its last worker. With "
            "`consistency.on_worker_loss` `go_on`."},

    {"checkpoint.dir", TS_KEY_PATH, AT(checkpoint.dir), NULL,
     .doc = "Folder of the checkpoints; without it there are none. With `consistency.stragglers` "
            "`wait`, and without relays, at either side of them. With `consistency.mode` `ssp` and `asp` everybody waits at the checkpoint's step until all have reached it. May be a disk of each host's own: every server and worker then needs its own "
            "files there when it goes on."},
    {"checkpoint.every_steps", TS_KEY_U64, AT(checkpoint.every_steps), "0", ANY_U64, .unit = "steps",
     .doc = "One every so many steps, but when one is being written then; 0: only when asked, and at the end."},
    {"checkpoint.keep", TS_KEY_U32, AT(checkpoint.keep), "3", .low = 1, .high = 1000000,
     .doc = "How many of the run are kept; older ones are removed once a newer one is complete."},
    {"checkpoint.at_end", TS_KEY_BOOL, AT(checkpoint.at_end), "true", .doc = "One after the last step, when their number is known."},
    {"checkpoint.resume", TS_KEY_PATH, AT(checkpoint.resume), "auto", NAMES(resume_names),
     .doc = "What the job begins with. `auto`: the newest complete checkpoint in `checkpoint.dir`, if there is one: so the "
            "same command starts a run and goes on with it. `never`: the first step; checkpoints of other runs stay. A path: "
            "that checkpoint's folder."},
    {"http.listen", TS_KEY_TEXT, AT(http.listen), NULL, .doc = "Address and port of the page (ignored)."},
    {"log.level", TS_KEY_CHOICE, AT(log.level), "info", NAMES(level_names), .doc = "Least important message shown."},
};
const unsigned ts_config_keys_count = COUNT(ts_config_keys);

#define RULE(member) offsetof(ts_config_rule, member)
const ts_config_key ts_config_rule_keys[TS_RULE_KEYS] = {
    {"match", TS_KEY_PATTERN, RULE(match), NULL, .doc = "Pattern of the tensor's name, with `*`, `?` and `[a-z]`; `\\[` is the character itself."},
    {"min_elems", TS_KEY_U64, RULE(min_elems), "0", ANY_U64, .unit = "elements",
     .doc = "Only tensors of at least so many elements; 0: any."},
    {"max_elems", TS_KEY_U64, RULE(max_elems), "0", ANY_U64, .unit = "elements",
     .doc = "Only tensors of at most so many elements; 0: any."},
    {"min_rank", TS_KEY_U32, RULE(min_rank), "0", .low = 0, .high = TS_TENSOR_DIMS,
     .doc = "Only tensors with at least so many extents; 0: any."},
    {"max_rank", TS_KEY_U32, RULE(max_rank), "0", .low = 0, .high = TS_TENSOR_DIMS,
     .doc = "Only tensors with at most so many extents; 0: any."},
    {"pipeline", TS_KEY_PIPELINE, RULE(pipeline), NULL, .doc = "The pipeline of the tensors that match. Required."},
};

const ts_config_key *ts_config_key_find(const char *name) {
    for (unsigned i = 0; i < ts_config_keys_count; i++) {
        if (strcmp(ts_config_keys[i].name, name) == 0) return &ts_config_keys[i];
    }
    return NULL;
}

unsigned ts_config_key_index(const ts_config_key *key) { return (unsigned)(key - ts_config_keys); }

bool ts_config_key_is_section(const char *name) {
    for (unsigned i = 0; i < ts_config_sections_count; i++) {
        if (strcmp(ts_config_sections[i].name, name) == 0) return true;
    }
    return false;
}
