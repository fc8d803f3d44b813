"""Real recordings, from WAV files to a trained model, through the stages of PyTorch and JAX."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep

from .test_train import LEAST_RIGHT, datasets, right_share

pytestmark = pytest.mark.train

EPOCHS = 30
__all__ = ["datasets"]  # the fixture


def check(model: Any, loader: seqprep.Loader) -> None:
    right = right_share(loader, model)
    print(f"\n{right:.1%} of recordings right")
    assert right > LEAST_RIGHT


def test_pytorch_learns_digits(datasets: dict[str, Path]) -> None:
    torch = pytest.importorskip("torch")
    from torch import nn

    from seqprep.torch import stage

    torch.manual_seed(1)
    layers = nn.Sequential(nn.Conv1d(40, 64, 5, padding=2), nn.ReLU(), nn.Dropout(0.2),
                           nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(), nn.Dropout(0.2))  # fmt: skip
    out = nn.Linear(128, 10)
    parts = nn.ModuleList([layers, out])
    optimizer = torch.optim.Adam(parts.parameters(), 2e-3)

    def logits_of(data: Any, size0: Any) -> Any:
        valid = (torch.arange(data.shape[1]) < size0[:, None])[:, None]
        values = layers((data.transpose(1, 2) - 12) / 4 * valid) * valid
        return out(torch.cat([values.sum(2) / size0[:, None], values.amax(2)], dim=1))

    losses = []
    with seqprep.Loader(datasets["train-hdf5"], shuffle=True, seed=1) as loader, stage(loader, device="cpu") as staged:
        for _ in range(EPOCHS):
            for batch in staged:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(logits_of(batch["data"], batch["data/size0"]), batch["digit"].long())
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        assert loader.epoch == EPOCHS
    steps = len(losses) // EPOCHS
    assert np.mean(losses[-steps:]) < np.mean(losses[:steps]) / 4
    parts.eval()

    def model(batch: Any) -> Any:
        with torch.no_grad():
            return logits_of(torch.from_numpy(batch["data"]), torch.from_numpy(batch["data/size0"]))

    with seqprep.Loader(datasets["held-out-hdf5"]) as held_out:
        check(model, held_out)


def test_jax_learns_digits(datasets: dict[str, Path]) -> None:
    jax = pytest.importorskip("jax")
    from seqprep.jax import stage

    jnp = jax.numpy
    keys = jax.random.split(jax.random.key(1), 3)
    params = {
        "first": jax.random.normal(keys[0], (5, 40, 64)) / 14,
        "second": jax.random.normal(keys[1], (5, 64, 64)) / 18,
        "out": jax.random.normal(keys[2], (128, 10)) / 11,
    }

    def logits_of(params: Any, data: Any, size0: Any) -> Any:
        valid = (jnp.arange(data.shape[1]) < size0[:, None])[..., None]
        values = (data - 12) / 4 * valid
        for name in ("first", "second"):
            values = jax.lax.conv_general_dilated(
                values, params[name], (1,), "SAME", dimension_numbers=("NTC", "TIO", "NTC")
            )
            values = jax.nn.relu(values) * valid
        return jnp.concatenate([values.sum(1) / size0[:, None], values.max(1)], axis=1) @ params["out"]

    def loss_of(params: Any, data: Any, size0: Any, digit: Any) -> Any:
        shares = jax.nn.log_softmax(logits_of(params, data, size0))
        return -jnp.mean(jnp.take_along_axis(shares, digit[:, None], axis=1))

    @jax.jit
    def train_step(params: Any, moments: Any, step: Any, *arrays: Any) -> Any:  # Adam
        loss, gradients = jax.value_and_grad(loss_of)(params, *arrays)
        first, second = moments
        first = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, first, gradients)
        second = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new**2, second, gradients)
        rate = 2e-3 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        params = jax.tree.map(lambda value, a, b: value - rate * a / (jnp.sqrt(b) + 1e-7), params, first, second)
        return params, (first, second), loss

    moments = (jax.tree.map(jnp.zeros_like, params),) * 2
    losses: list[float] = []
    with seqprep.Loader(datasets["train-hdf5"], shuffle=True, seed=1) as loader, stage(loader) as staged:
        for _ in range(EPOCHS):
            for batch in staged:
                arrays = batch["data"], batch["data/size0"], batch["digit"]
                params, moments, loss = train_step(params, moments, len(losses) + 1.0, *arrays)
                losses.append(float(loss))
    steps = len(losses) // EPOCHS
    assert np.mean(losses[-steps:]) < np.mean(losses[:steps]) / 4
    with seqprep.Loader(datasets["held-out-hdf5"]) as held_out:
        check(lambda batch: logits_of(params, batch["data"], batch["data/size0"]), held_out)
