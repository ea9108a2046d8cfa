"""Gymnasium's MuJoCo robots stepped in batches for `vec=mujoco`."""
