"""Names of other libraries (Stable-Baselines3, CleanRL, RLlib, Gymnasium) for the keys and commands of Paddock."""

import re
import sys
from collections.abc import Iterable
from typing import NoReturn

from paddock.envs.errors import closest

from .. import COMMANDS

_NAMES = {
    # groups
    "algo": "agent algorithm learner model optimizer policy strategy trainer",
    "env": "environment game gym task",
    "vec": "envs vec_env vector",
    "compute": "backend cluster executor pool scheduler",
    "track": "log logger logging tensorboard tracking use_wandb wandb",
    # environments
    "env.id": "env_id env_name gym_id task_id",
    "env.kwargs": "env_args env_config env_kwargs",
    "env.wrappers": "env_wrapper wrapper wrappers",
    "env.max_episode_steps": "episode_length max_ep_len time_limit",
    "vec.num_envs": "n_env n_envs num_env num_envs num_envs_per_env_runner",
    "algo.num_actors": "num_env_runners num_rollout_workers",
    # learning
    "algo.learning_rate": "alpha learn_rate lr step_size",
    "algo.learning_rate_schedule": "anneal_lr anneal_steps linear_schedule lr_schedule",
    "algo.learning_rate_decay": "anneal_lr lr_decay lr_schedule",
    "algo.gamma": "discount discount_factor",
    "algo.gae_lambda": "lam lambda lambda_ td_lambda",
    "algo.num_steps": "horizon n_steps rollout_fragment_length rollout_length unroll_length",
    "algo.minibatch_size": "batch_size minibatches n_minibatches num_minibatches sgd_minibatch_size",
    "algo.epochs": "n_epochs num_epochs num_sgd_iter update_epochs",
    "algo.clip_schedule": "anneal_clip",
    "algo.clip_coef": "clip clip_eps clip_param clip_range clip_ratio",
    "algo.target_kl": "kl_target",
    "algo.value_clip_coef": "clip_range_vf clip_vloss vf_clip_param",
    "algo.entropy_coef": "beta ent_coef entropy_coeff",
    "algo.value_coef": "vf_coef vf_loss_coeff",
    "algo.max_grad_norm": "clip_grad grad_clip",
    "algo.normalize_advantages": "norm_adv normalize_advantage",
    "algo.normalize_observations": "norm_obs normalize_obs",
    "algo.normalize_rewards": "norm_reward normalize_reward",
    "algo.hidden_sizes": "fcnet_hiddens hidden hidden_dim hidden_size layers net_arch policy_kwargs units",
    "algo.activation": "activation_fn fcnet_activation nonlinearity",
    "algo.custom_encoder": "encoder_class network",
    "algo.encoder": "cnn features_extractor",
    "algo.lstm": "gru recurrent rnn use_lstm",
    "algo.agent_id_feature": "seat_feature",
    "algo.log_every_steps": "log_interval row_every",
    "algo.device": "cuda gpu num_gpus num_gpus_per_learner use_cuda",
    "algo.opponents": "opponent self_play",
    "algo.eval_every_iterations": "eval_every eval_freq eval_interval evaluation_interval",
    "algo.eval_every_steps": "eval_every eval_freq eval_interval evaluation_interval",
    "algo.eval_episodes": "evaluation_duration n_eval_episodes",
    # learning from replay
    "algo.buffer_size": "capacity memory_size replay_size",
    "algo.batch_size": "minibatch train_batch_size",
    "algo.learning_starts": "initial_steps num_steps_sampled_before_learning_starts start_steps warmup",
    "algo.updates_per_step": "gradient_steps replay_ratio train_freq train_frequency training_intensity utd_ratio",
    "algo.n_step": "multi_step n_steps",
    "algo.tau": "polyak soft_update",
    "algo.target_every": "target_network_frequency target_network_update_freq target_update_interval",
    "algo.priority_exponent": "per prioritized_replay_alpha",
    "algo.double": "double_dqn double_q",
    "algo.atoms": "c51 num_atoms",
    "algo.noisy_sigma": "noisy sigma0",
    "algo.epsilon_start": "epsilon exploration_initial_eps start_e",
    "algo.epsilon_end": "end_e exploration_final_eps",
    "algo.epsilon_steps": "epsilon_decay exploration_fraction",
    "algo.alpha": "ent_coef entropy_coef initial_alpha temperature",
    "algo.learn_alpha": "autotune",
    "algo.num_dropped_quantiles": "drop top_quantiles_to_drop_per_net",
    "algo.num_critics": "critics n_critics twin_q",
    "algo.actor_every": "policy_delay policy_frequency",
    "algo.target_noise": "policy_noise target_policy_noise",
    "algo.target_noise_clip": "noise_clip",
    # search
    "algo.population": "pop_size population_size popsize",
    "algo.members": "pop_size population population_size",
    "algo.sigma": "exploration_noise noise_std sigma_init std",
    "algo.weight_decay": "l2 l2coeff",
    # every run
    "seed": "random_seed rng_seed seeds",
    "init_from": "pretrained transfer_from warm_start weights",
    "resume": "continue load restore resume_from",
    "budget.steps": "frames max_steps max_timesteps n_timesteps num_timesteps steps timesteps total_timesteps",
    "budget.iterations": "generations iters max_iterations num_iterations num_updates",
    "budget.minutes": "max_time time_budget",
    "budget.return": "reward_threshold target_return",
    "run.root": "log_dir logdir save_dir",
    "run.dir": "dir folder out_dir output output_dir path save_path tensorboard_log",
    "run.name": "exp_name experiment_name run_name tb_log_name",
    "checkpoint.every_s": "checkpoint_interval save_freq",
    # workers
    "compute.workers": "cpus n_jobs n_workers nproc num_cpus num_processes num_workers workers",
    "compute.address": "host scheduler_address url",
    "compute.memory_gb": "mem memory ram",
    "compute.partition": "queue",
    "compute.time_min": "time walltime",
    "track.wandb.project": "project wandb_project wandb_project_name",
    "track.wandb.entity": "entity wandb_entity",
    "hydra.sweeper.objectives": "direction directions metric objective",
    "hydra.sweeper.n_trials": "n_trials num_samples trials",
}
USUAL = {key: tuple(names.split()) for key, names in _NAMES.items()}
COMMAND_NAMES = {"train": "paddock", "eval": "paddock.evaluate", "onnx": "paddock.export", "test": "paddock.evaluate"}


def find_usual(name: str) -> list[str]:
    """Return the keys that another library calls so, in the table's order."""
    name = name.lower().replace("-", "_")
    return [key for key, names in USUAL.items() if name in names]


def suggest_key(key: str, known: Iterable[str]) -> str | None:
    """Suggest keys for one that does not exist: "did you mean 'algo.gamma'?"; None where nothing is near.

    Args:
        key: its dotted path, as it was written.
        known: the dotted paths of all keys.
    """
    known = [other for other in known if not _name(other).startswith("_")]
    section, _, name = key.rpartition(".")
    same = [other for other in known if _name(other) == name]
    here = [other for other in known if not section or _section(other) == section]
    misspelled = closest(key, same) if section and section not in known else None  # the section is
    usual = [other for other in find_usual(name) if other in known]
    near = closest(name, map(_name, here))
    found = (
        [misspelled] if misspelled else [k for k in usual if _section(k) in (section, *find_usual(section))] or usual
    )
    found = found or [other for other in here if _name(other) == near] or (same if len(same) == 1 else [])
    return f"did you mean {' or '.join(map(repr, found[:3]))}?" if found else None


def suggest_flag(message: str) -> str:
    """Explain argparse's message about a flag that may be one of our keys."""
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
    """Suggest the command that is meant by a name that is none's, or list them."""
    name = _name(name).lower()
    near = closest(name, COMMANDS)
    meant = COMMAND_NAMES.get(name, f"paddock.{near}" if near else None)
    return f"did you mean python -m {meant}?" if meant else f"there are paddock, paddock.{', paddock.'.join(COMMANDS)}"


def _section(key: str) -> str:
    return key.rpartition(".")[0]


def _name(key: str) -> str:
    return key.rpartition(".")[2]
