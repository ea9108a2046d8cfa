"""What the field calls the things that are chosen and set here: for whoever writes the name that he knows.

Other libraries' names by our own: Stable-Baselines3, CleanRL, RLlib, Tianshou, evosax, estool, PyTorch Lightning.
"""

import re
import sys
from collections.abc import Iterable
from typing import NoReturn

from paddock.envs.errors import closest

USUAL: dict[str, tuple[str, ...]] = {
    # groups
    "algo": ("agent", "algorithm", "learner", "method", "model", "optimizer", "strategy", "trainer"),
    "env": ("environment", "game", "gym", "task"),
    "vec": ("envs", "vec_env", "vecenv", "vector", "vectorization", "vectorizer"),
    "compute": ("backend", "cluster", "executor", "pool", "scheduler"),
    "track": ("log", "logger", "loggers", "logging", "tensorboard", "tracker", "tracking", "use_wandb", "wandb"),
    # environments
    "env.id": ("env_id", "env_name", "environment_id", "environment_name", "gym_id", "task_id"),
    "env.kwargs": ("env_args", "env_config", "env_kwargs", "kwargs", "make_kwargs"),
    "env.wrappers": ("env_wrapper", "wrapper", "wrappers"),
    "env.max_episode_steps": ("episode_length", "max_ep_len", "max_episode_length", "time_limit"),
    "vec.num_envs": ("n_env", "n_envs", "num_env", "num_environments", "num_envs", "num_envs_per_worker"),
    # learning
    "algo.learning_rate": ("alpha", "learn_rate", "learningrate", "lr", "lrate", "step_size", "stepsize"),
    "algo.anneal_steps": ("anneal_lr", "lr_schedule"),
    "algo.learning_rate_decay": ("anneal_lr", "lr_decay", "lrate_decay", "lr_schedule"),
    "algo.gamma": ("discount", "discount_factor"),
    "algo.gae_lambda": ("lam", "lambda", "lambda_", "lmbda", "td_lambda"),
    "algo.num_steps": (
        *("horizon", "n_steps", "nsteps", "rollout_fragment_length", "rollout_length", "rollout_steps"),
        *("steps", "t_max", "unroll_length"),
    ),
    "algo.minibatch_size": (
        *("batch_size", "batchsize", "mini_batch_size", "minibatches", "n_minibatches", "nminibatches"),
        *("num_mini_batch", "num_minibatches", "sgd_minibatch_size"),
    ),
    "algo.epochs": ("k_epochs", "n_epochs", "noptepochs", "num_epochs", "num_sgd_iter", "ppo_epoch", "update_epochs"),
    "algo.clip_coef": (
        *("clip", "clip_eps", "clip_epsilon", "clip_param", "clip_range", "clip_ratio", "cliprange", "eps_clip"),
    ),
    "algo.value_clip_coef": ("clip_range_vf", "clip_vloss", "value_clip", "vf_clip_param"),
    "algo.entropy_coef": ("beta", "ent_coef", "ent_coeff", "entropy_coeff", "entropy_coefficient", "entropy_weight"),
    "algo.value_coef": ("value_coefficient", "value_loss_coef", "vf_coef", "vf_coeff", "vf_loss_coeff"),
    "algo.max_grad_norm": ("clip_grad", "grad_clip", "grad_norm", "gradient_clip", "gradient_clip_val", "max_norm"),
    "algo.target_kl": ("kl_target", "max_kl"),
    "algo.adam_epsilon": ("adam_eps", "eps"),
    "algo.normalize_advantages": ("adv_norm", "norm_adv", "normalize_adv", "normalize_advantage"),
    "algo.normalize_observations": ("norm_obs", "normalize_input", "normalize_obs", "obs_norm"),
    "algo.normalize_rewards": ("norm_reward", "normalize_reward", "reward_norm", "reward_scaling"),
    "algo.hidden": (
        *("fcnet_hiddens", "hidden_dim", "hidden_dims", "hidden_layers", "hidden_size", "hidden_sizes", "layers"),
        *("mlp", "net_arch", "policy_kwargs", "units"),
    ),
    "algo.activation": ("activation_fn", "fcnet_activation", "nonlinearity"),
    "algo.encoder": ("cnn", "feature_extractor", "features_extractor", "policy_type"),
    "algo.lstm": ("gru", "memory", "recurrent", "rnn", "use_lstm", "use_rnn"),
    "algo.gaussian": ("clip_actions", "squash", "squash_output", "squashed", "tanh_squash", "use_tanh"),
    "algo.initial_log_std": ("init_log_std", "log_std_init"),
    "algo.device": ("accelerator", "cuda", "gpu", "gpus", "num_gpus", "use_cuda", "use_gpu"),
    "algo.precision": ("amp", "bf16", "dtype", "fp16", "mixed_precision"),
    "algo.compiled": ("compile", "torch_compile"),
    "algo.opponents": ("opponent", "opponent_pool", "self_play", "selfplay"),
    "algo.threads": ("n_threads", "num_threads", "torch_threads"),
    "algo.eval_every": ("eval_freq", "eval_interval", "evaluation_interval"),
    "algo.eval_episodes": ("evaluation_duration", "n_eval_episodes", "num_eval_episodes"),
    # learning from replay
    "algo.capacity": ("buffer", "buffer_size", "memory_size", "replay", "replay_buffer_size", "replay_size"),
    "algo.batch_size": ("minibatch", "minibatch_size", "train_batch_size"),
    "algo.warmup": ("initial_steps", "learning_starts", "min_replay_size", "random_steps", "start_steps"),
    "algo.updates_per_step": (
        *("gradient_steps", "replay_ratio", "train_freq", "train_frequency", "training_intensity", "update_every"),
        *("updates", "utd", "utd_ratio"),
    ),
    "algo.n_step": ("multi_step", "n_steps", "nstep"),
    "algo.sync_every": ("broadcast_interval", "max_weight_sync_delay", "update_period", "variable_update_period"),
    "algo.tau": ("polyak", "polyak_tau", "soft_update"),
    "algo.target_every": (
        *("target_network_frequency", "target_update", "target_update_freq", "target_update_interval"),
        *("target_update_period", "update_target_every"),
    ),
    "algo.huber": ("huber_loss", "loss", "loss_fn", "smooth_l1"),
    "algo.double": ("ddqn", "double_dqn", "double_q"),
    "algo.dueling": ("duel", "dueling_dqn"),
    "algo.quantiles": ("n_quantiles", "num_quantiles"),
    "algo.atoms": ("atom_size", "n_atoms", "num_atoms"),
    "algo.noisy_sigma": ("noisy", "noisy_net", "noisy_std", "sigma0", "std_init"),
    "algo.priority_exponent": ("per", "per_alpha", "prioritized", "prioritized_replay", "prioritized_replay_alpha"),
    "algo.importance_exponent": ("beta", "per_beta", "prioritized_replay_beta"),
    "algo.burn_in": ("burnin", "replay_burn_in", "warmup_t", "warmup_length"),
    "algo.sequence_length": ("batch_t", "max_seq_len", "seq_len", "sequence_len", "trace_length"),
    "algo.rescale": ("h_function_epsilon", "use_h_function", "value_rescaling", "value_scale_eps"),
    "algo.epsilon_start": ("epsilon", "exploration_initial_eps", "initial_epsilon", "start_e"),
    "algo.epsilon_end": ("end_e", "exploration_final_eps", "final_epsilon", "min_epsilon"),
    "algo.epsilon_steps": ("epsilon_decay", "epsilon_timesteps", "exploration_fraction", "exploration_steps"),
    "algo.alpha": ("ent_coef", "entropy_coef", "temperature"),
    "algo.learn_alpha": ("auto_alpha", "automatic_entropy_tuning", "autotune"),
    "algo.drop": ("top_quantiles_to_drop", "top_quantiles_to_drop_per_net"),
    "algo.critics": ("n_critics", "num_critics"),
    "algo.actor_every": ("policy_delay", "policy_freq", "policy_frequency"),
    "algo.target_noise": ("policy_noise", "target_policy_noise"),
    "algo.target_noise_clip": ("noise_clip",),
    # search
    "algo.population": ("n_pop", "npop", "num_population", "pop_size", "population_size", "popsize"),
    "algo.members": ("n_pop", "npop", "num_members", "pop_size", "population", "population_size", "popsize"),
    "algo.sigma": (
        "action_noise",
        "exploration_noise",
        "noise_scale",
        "noise_std",
        "noise_stdev",
        "sigma0",
        "sigma_init",
        "std",
        "stdev",
    ),
    "algo.sigma_floor": ("sigma_limit", "sigma_min"),
    "algo.weight_decay": ("l2", "l2_coeff", "l2coeff"),
    "algo.episodes_per_member": ("n_episodes", "num_episodes", "num_evals", "num_rollouts"),
    "algo.max_niches": ("max_num_envs", "max_envs"),
    "algo.transfer_every": ("steps_before_transfer", "transfer_interval"),
    "algo.reproduce_every": ("adjust_interval", "mutation_interval"),
    # every run
    "seed": ("random_seed", "random_state", "rng", "rng_seed", "seeds"),
    "init_from": (
        *("fine_tune", "finetune", "init", "load_policy", "pretrained", "start_from", "transfer_from", "warm_start"),
        *("warmstart", "weights"),
    ),
    "resume": ("continue", "load", "load_model", "reload", "restore", "resume_from"),
    "dry_run": ("debug", "dry", "dryrun", "test"),
    "budget.steps": (
        *("env_steps", "frames", "max_frames", "max_steps", "max_timesteps", "n_timesteps", "num_env_steps"),
        *("num_frames", "num_timesteps", "steps", "timesteps", "total_frames", "total_steps", "total_timesteps"),
    ),
    "budget.iterations": (
        *("generations", "iters", "max_generations", "max_iter", "max_iterations", "n_generations", "n_iter"),
        *("n_iterations", "num_generations", "num_iterations", "num_updates", "total_iterations", "updates"),
    ),
    "budget.minutes": ("hours", "max_minutes", "max_time", "seconds", "time", "time_budget"),
    "budget.return": ("reward_threshold", "stop_reward", "target_return", "target_reward", "target_score"),
    "run.root": ("log_dir", "logdir", "root_dir", "runs_dir", "save_dir"),
    "run.dir": (
        *("dir", "folder", "out", "out_dir", "outdir", "output", "output_dir", "path", "run_dir", "rundir"),
        *("save_path", "workdir"),
    ),
    "run.name": ("exp_name", "experiment_name", "run_id", "run_name", "tag"),
    "checkpoint.every_s": ("checkpoint_every", "checkpoint_freq", "checkpoint_interval", "save_freq", "save_interval"),
    "checkpoint.keep": ("keep_checkpoints", "max_to_keep", "num_to_keep", "save_total_limit"),
    # workers
    "compute.workers": (
        *("cores", "cpu", "cpus", "n_cpu", "n_cpus", "n_jobs", "n_procs", "n_workers", "ncpu", "nproc", "num_cpus"),
        *("num_proc", "num_processes", "num_workers", "processes", "worker", "workers"),
    ),
    "compute.address": ("host", "hostname", "scheduler_address", "url"),
    "compute.gpus": ("gpu", "gpus", "num_gpus"),
    "compute.memory_gb": ("mem", "memory", "ram"),
    "compute.partition": ("queue",),
    "compute.walltime": ("time",),
    "compute.task_timeout_s": ("task_timeout", "timeout"),
    "compute.retries": ("max_retries",),
    "track.mirrors.wandb.project": ("project", "project_name", "wandb_project", "wandb_project_name"),
    "track.mirrors.wandb.entity": ("entity", "wandb_entity"),
    "track.mirrors.wandb.mode": ("wandb_mode",),
    "serve.address": ("bind", "listen", "port"),
    "hydra.sweeper.objectives": ("direction", "directions", "metric", "mode", "objective"),
    "hydra.sweeper.parallel": ("concurrency", "max_concurrent", "n_jobs", "num_parallel"),
    "hydra.sweeper.n_trials": ("n_trials", "num_samples", "num_trials", "trials"),
}
SPACES: dict[str, tuple[str, ...]] = {  # how Hydra writes what varies: what others call it
    "interval(LOW, HIGH)": ("float_uniform", "suggest_float", "uniform"),
    "tag(log, interval(LOW, HIGH))": ("log", "log_uniform", "loguniform", "reciprocal"),
    "int(interval(LOW, HIGH))": ("int_uniform", "integers", "randint", "suggest_int", "uniform_int"),
    "range(START, STOP, STEP)": ("arange", "linspace", "quniform"),
    "choice(A, B)": ("categorical", "choices", "grid", "one_of", "suggest_categorical"),
}
COMMANDS: dict[str, tuple[str, ...]] = {  # a command: what else it might be called
    "paddock": ("experiment", "launch", "learn", "main", "run", "search", "start", "sweep", "train"),
    "paddock.evaluate": ("enjoy", "eval", "film", "play", "record", "render", "show", "test", "video", "visualize"),
    "paddock.export": ("convert", "onnx", "save_model", "to_onnx"),
    "paddock.plot": ("curves", "draw", "graph", "plots"),
    "paddock.report": ("compare", "html", "reports", "summary"),
    "paddock.rerun": ("reproduce", "repeat", "replay"),
    "paddock.status": ("jobs", "list", "ls", "ps", "queue", "runs", "stat"),
    "paddock.check": ("check_env", "checks", "env", "validate", "verify"),
    "paddock.doctor": ("diagnose", "health", "info", "version"),
    "paddock.sanity": ("debug", "ocean", "sane", "selftest", "suite"),
    "paddock.serve": ("grpc", "host", "listen", "remote", "server"),
    "paddock.upload": ("mirror", "push", "sync"),
}


def find_usual(name: str) -> list[str]:
    """Our keys for what is called so elsewhere, in the table's order."""
    name = name.lower().replace("-", "_")
    return [key for key, names in USUAL.items() if name in names]


def suggest_key(key: str, known: Iterable[str]) -> str | None:
    """Say what a key that is not there is called here: "did you mean 'algo.gamma'?"; None where nothing is near.

    Args:
        key: its dotted path, as it was written.
        known: the dotted paths of all keys.
    """
    known = [other for other in known if not _name(other).startswith("_")]
    section, _, name = key.rpartition(".")
    usual, same = find_usual(name), [other for other in known if _name(other) == name]
    here = [other for other in known if not section or _section(other) == section]
    near = closest(name, map(_name, here))
    spelled = [other for other in here if _name(other) == near]
    if section and section not in known:
        near = closest(key, same)
        found = [other for other in same if other == near or not usual]
    else:
        found = []
    if not found and usual:  # what it is called is certain, and that it is not here may be too
        elsewhere = [other for other in usual if other in known]
        found = [other for other in elsewhere if _section(other) in (section, *find_usual(section))]
        found = found or [*elsewhere, *(spelled if section else [])]
    elif not found:
        found = spelled or (same if len(same) == 1 else [])
    found.sort(key=lambda other: not _name(other).startswith(name))  # such as a plural
    return f"did you mean {' or '.join(map(repr, found[:3]))}?" if found else None


def suggest_function(name: str) -> str:
    """Say how what varies is written, where a function is called in a wrong way or by another name."""
    usual = [written for written, names in SPACES.items() if name.lower() in names or written.startswith(f"{name}(")]
    return f"write {' or '.join(usual or SPACES)}"


def suggest_package(group: str) -> str:
    """Say how the keys of a file of a group reach the whole configuration."""
    return f"the file that {group}= chooses has to begin with the line `# @package _global_`"


def suggest_flag(message: str) -> str:
    """Explain what argparse says of a flag that may be one of our keys."""
    flag = re.search(r"unrecognized arguments: (--?([a-zA-Z][\w./@-]+))", message)
    if flag is None:
        return message
    key = [*find_usual(flag.group(2)), flag.group(2)][0]
    return f"{flag.group(1)} is not a flag; keys are written without dashes, as in {key}=..."


def refuse_command(module: str) -> NoReturn:
    """End the process with a line where Python is asked to run a module of ours that is no command."""
    print(f"paddock: python -m {module} is not a command; {suggest_command(module)}", file=sys.stderr)
    sys.exit(2)


def suggest_command(name: str) -> str:
    """Say which command is meant by a name that is none's, or list them."""
    name = _name(name).lower()
    usual = [command for command, names in COMMANDS.items() if name in names]
    near = closest(name, map(_name, COMMANDS))
    usual += [command for command in COMMANDS if _name(command) == near]
    return f"did you mean python -m {usual[0]}?" if usual else f"there are {', '.join(COMMANDS)}"


def _section(key: str) -> str:
    return key.rpartition(".")[0]


def _name(key: str) -> str:
    return key.rpartition(".")[2]
