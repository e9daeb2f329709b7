/* SPDX-License-Identifier: Apache-2.0 */
/* What each bad config of this folder must be refused with, after its path: X(file, text) */
#define TS_BAD_CONFIGS(X) \
    X("empty.yaml",\
      ": the file is empty; a file that sets nothing is written {}") \
    X("comments_only.yaml",\
      ": the file is empty") \
    X("tab.yaml",\
      ":3: not valid YAML: while scanning for the next token: found character that cannot start any token at column 1 (YAML indents by spaces, never by tabs)") \
    X("unclosed.yaml",\
      ":3: not valid YAML:") \
    X("two_documents.yaml",\
      ":4: a second document begins here; allowed: one") \
    X("not_mapping.yaml",\
      ":2: a list is not allowed here; allowed: a mapping of keys") \
    X("bad_utf8.yaml",\
      ":2: not text in UTF-8: ") \
    X("zero_byte.yaml",\
      ":2: training.model: \"ml\": holds a zero byte") \
    X("unknown_key.yaml",\
      ":3: training.epoch: unknown key; did you mean training.epochs? allowed here: model, data, data_dir, shapes, epochs, batch, seed, max_steps, threads, first_worker, all_workers") \
    X("unused_beta.yaml",\
      ":2: optimizer.beta1: \"0.5\": not used by optimizer.name rmsprop") \
    X("weighted_median.yaml",\
      ":2: aggregation.mode: \"samples\": a median and a trimmed mean have no weights") \
    X("half_trim.yaml",\
      ":2: aggregation.trim: \"0.5\": allowed: a number of at least 0 and below 0.5") \
    X("trim_alone.yaml",\
      ":2: aggregation.trim: \"0.2\": only with aggregation.robust trimmed") \
    X("robust_ef21.yaml",\
      ":2: aggregation.robust: \"median\": error_feedback.variant ef21") \
    X("decoupled_correction.yaml",\
      ":2: optimizer.decoupled_weight_decay: \"true\": with error_feedback.momentum_correction") \
    X("unknown_section.yaml",\
      ":2: trainning: unknown key; did you mean training? allowed here: training, worker, job, servers, consistency, optimizer, aggregation, error_feedback, push, pull, auth, upstream, limits, daemon, checkpoint, http, log") \
    X("misplaced_key.yaml",\
      ":2: epochs: unknown key; did you mean training.epochs?") \
    X("far_key.yaml",\
      ":2: zzzzzzzz: unknown key; allowed here: training,") \
    X("unknown_in_rule.yaml",\
      ":4: push.rules[0].pipline: unknown key; did you mean pipeline? allowed here: match, min_elems, max_elems, min_rank, max_rank, pipeline") \
    X("twice.yaml",\
      ":5: training: \"epochs\": the key stands here twice (first in line 3)") \
    X("section_twice.yaml",\
      ":3: \"training\": the key stands here twice (first in line 2)") \
    X("list_key.yaml",\
      ":2: training: a list cannot be a key") \
    X("list_for_number.yaml",\
      ":3: training.epochs: a list is not allowed here; allowed: a whole number from 1 to 1000000") \
    X("scalar_for_section.yaml",\
      ":2: training: a single value is not allowed here; allowed: a mapping of keys") \
    X("text_for_number.yaml",\
      ":3: training.epochs: \"many\": allowed: a whole number from 1 to 1000000") \
    X("missing_value.yaml",\
      ":3: training.epochs: the value is missing; allowed: a whole number") \
    X("zero_epochs.yaml",\
      ":2: training.epochs: \"0\": allowed: a whole number from 1 to 1000000") \
    X("negative_epochs.yaml",\
      ":2: training.epochs: \"-1\": allowed: a whole number") \
    X("fraction_epochs.yaml",\
      ":2: training.epochs: \"1.5\": allowed: a whole number") \
    X("huge_number.yaml",\
      ":2: training.seed: \"18446744073709551616\": allowed: a whole number of at least 0") \
    X("hex_number.yaml",\
      ":2: training.epochs: \"0x10\": allowed: a whole number") \
    X("negative_rate.yaml",\
      ":3: optimizer.lr: \"-0.1\": allowed: a number of at least 0 and at most 1000000") \
    X("nan_rate.yaml",\
      ":3: optimizer.lr: \"nan\": allowed: a number") \
    X("dot_nan_rate.yaml",\
      ":3: optimizer.lr: \".nan\": allowed: a number") \
    X("infinite_rate.yaml",\
      ":3: optimizer.lr: \"1e999\": allowed: a number") \
    X("unit_rate.yaml",\
      ":3: optimizer.lr: \"0.1x\": allowed: a number") \
    X("momentum_one.yaml",\
      ":2: optimizer.momentum: \"1\": allowed: a number of at least 0 and below 1") \
    X("bad_bool.yaml",\
      ":2: error_feedback.enabled: \"maybe\": allowed: true or false") \
    X("bad_enum.yaml",\
      ":2: optimizer.name: \"adagrab\": allowed: one of sgd, adagrad, rmsprop, adam, adamw, lamb, none") \
    X("bad_level.yaml",\
      ":2: log.level: \"loud\": allowed: one of error, warn, info, debug") \
    X("zero_ratio.yaml",\
      ":3: push.default: \"topk:0 | int8\": ") \
    X("nonsense_pipeline.yaml",\
      ":4: push.rules[0].pipeline: \"int8 | topk:0.1\": ") \
    X("unknown_stage.yaml",\
      ":2: pull.default: \"gzip\": ") \
    X("rule_without_pipeline.yaml",\
      ":4: push.rules[0]: the rule has no pipeline") \
    X("rule_not_mapping.yaml",\
      ":4: push.rules[0]: a single value is not a rule; allowed: {match: \"*.bias\", pipeline: int8}") \
    X("rules_not_list.yaml",\
      ":3: push.rules: a mapping of keys is not allowed here; allowed: a list of rules") \
    X("rule_min_above_max.yaml",\
      ":5: push.rules[1]: min_elems 10 is above max_elems 9: no tensor can match") \
    X("rule_rank.yaml",\
      ":4: pull.rules[0]: min_rank 3 is above max_rank 2: no tensor can match") \
    X("delta_pull.yaml",\
      ":3: pull.default: \"delta:4 | int8\": a pull sends differences already") \
    X("delta_pull_rule.yaml",\
      ":4: pull.rules[0]: delta:4 | int8: a pull sends differences already") \
    X("ef21_momentum.yaml",\
      ":2: error_feedback.momentum_correction: \"0.9\": variant ef21 keeps an estimate") \
    X("ef21_skip.yaml",\
      ":2: error_feedback.nonfinite: \"skip\": with variant ef21") \
    X("ef21_delta.yaml",\
      ":3: error_feedback.variant: \"ef21\": ef21 sends differences already") \
    X("beta_alone.yaml",\
      ":2: error_feedback.beta: \"0.5\": only with error_feedback.variant decayed") \
    X("variant_disabled.yaml",\
      ":2: error_feedback.variant: \"decayed\": needs error_feedback.enabled true") \
    X("replicas.yaml",\
      ":2: servers.replicas: \"1\": without rounds (consistency.mode ssp, asp) the order") \
    X("replicas_stragglers.yaml",\
      ":2: servers.replicas: \"1\": with consistency.stragglers proceed or backup") \
    X("replicas_two.yaml",\
      ":2: servers.replicas: \"2\": ") \
    X("ssp.yaml",\
      ":2: consistency.mode: \"ssp\": with optimizer.name none a pull carries a round's average; allowed here: bsp") \
    X("asp.yaml",\
      ":2: consistency.mode: \"asp\": with optimizer.name none a pull carries a round's average; allowed here: bsp") \
    X("stragglers_asp.yaml",\
      ":2: consistency.stragglers: \"backup\": only bsp waits for stragglers; allowed here: wait") \
    X("stragglers_without_quorum.yaml",\
      ":2: consistency.stragglers: \"proceed\": needs consistency.quorum, how many workers are enough") \
    X("late_alone.yaml",\
      ":2: consistency.late: \"apply\": only with consistency.stragglers proceed or backup") \
    X("bsp_staleness.yaml",\
      ":2: consistency.staleness: \"2\": only with mode ssp") \
    X("deadline_zero.yaml",\
      ":2: consistency.deadline_s: \"0\": allowed: a number of at least 0.001 and at most 1000000 (seconds)") \
    X("correction_without_sgd.yaml",\
      ":4: error_feedback.momentum_correction: \"0.9\": only with optimizer.name sgd; allowed here: 0") \
    X("nesterov_alone.yaml",\
      ":2: optimizer.nesterov: \"true\": needs optimizer.momentum above 0") \
    X("step_without_every.yaml",\
      ":2: optimizer.schedule.name: \"step\": needs optimizer.schedule.every_steps") \
    X("min_lr_above.yaml",\
      ":2: optimizer.schedule.min_lr: \"0.2\": above optimizer.lr; allowed: 0 to 0.1") \
    X("slice_above_frame.yaml",\
      ":3: limits.frame_bytes: \"1000000\": a slice of 1000000 elements does not fit; allowed: at least 8065536") \
    X("unknown_model.yaml",\
      ":2: training.model: \"resnet\": allowed: softmax, mlp, cnn, synthetic, or any name together with worker.plugin") \
    X("model_without_data.yaml",\
      ":2: training.data: \"none\": model mlp trains on data; allowed: fashion-mnist") \
    X("missing_data.yaml",\
      ":3: training.data_dir: \"no_such_folder\": tests/unit/config_cases/no_such_folder/train-images-idx3-ubyte.gz: No such file or directory; install") \
    X("missing_plugin.yaml",\
      ":2: worker.plugin: \"no_such.so\": tests/unit/config_cases/no_such.so: No such file or directory") \
    X("synthetic_alone.yaml",\
      ":2: training.model: \"synthetic\": needs training.shapes") \
    X("missing_shapes.yaml",\
      ":2: training.shapes: \"no_such.shapes\": tests/unit/config_cases/no_such.shapes: No such file or directory") \
    X("bad_extent.yaml",\
      ":2: training.shapes: \"zero_extent.shapes\": tests/unit/config_cases/zero_extent.shapes:3: fc.bias: extent \"0\"; allowed: whole numbers of at least 1") \
    X("empty_shapes.yaml",\
      ":2: training.shapes: \"nothing.shapes\": tests/unit/config_cases/nothing.shapes: no tensor in it") \
    X("double_shape.yaml",\
      ":2: training.shapes: \"double.shapes\": tests/unit/config_cases/double.shapes:4: fc.weight: the name stands here twice") \
    X("first_worker.yaml",\
      ":2: training.first_worker: \"2\": allowed: below training.all_workers, which is 2") \
    X("missing_upstream.yaml",\
      ":1: upstream.config: \"nowhere.yaml\": tests/unit/config_cases/nowhere.yaml: No such file or directory") \
    X("long_group.yaml",\
      ":2: servers.group: \"a.name.that.is.longer.than.it.may.be\": allowed: 1 to 31 characters") \
    X("relay_asp.yaml",\
      ":2: consistency.mode: \"asp\": below a relay (upstream.config) rounds are needed; allowed: bsp") \
    X("checkpoint_without_dir.yaml",\
      ":2: checkpoint.every_steps: \"100\": needs checkpoint.dir") \
    X("checkpoint_relay.yaml",\
      ":2: checkpoint.dir: \"run/ckpt\": parameters and optimizer are above (upstream.config)") \
    X("checkpoint_stragglers.yaml",\
      ":2: checkpoint.dir: \"run/ckpt\": rounds that do not wait leave packets under way at every step")
