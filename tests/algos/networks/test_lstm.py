"""An LSTM over sequences is its cell, step by step: in numbers and in gradients, in C and in torch."""

import logging
from typing import Any

import pytest
import torch
from compiled import missing, native  # noqa: F401, a fixture
from torch import Tensor, nn

from paddock.algos.networks import lstm
from paddock.algos.networks.dense import library as dense_library
from paddock.algos.networks.lstm import compiled, reference
from paddock.envs.native import library

SIZES = {  # T, B, F, H, whether rows rest
    "small": (7, 5, 4, 3, False),
    "turns": (7, 5, 4, 3, True),
    "one step": (1, 1, 3, 16, False),
    "parts": (6, 70, 5, 18, True),  # two, of 35 rows
    "most parts": (3, 600, 20, 17, False),
    "long": (60, 3, 2, 16, False),
}


class Sequences:
    """A cell, what it is given, and by how much what comes of it counts."""

    def __init__(self, size: str, dtype: torch.dtype = torch.float32) -> None:
        T, B, F, H, rests = SIZES[size]
        torch.manual_seed(3)
        with torch.random.fork_rng():
            self.cell = nn.LSTMCell(F, H)
            arrays = [torch.randn(shape) for shape in ((T, B, F), (B, 2 * H), (T, B, 2 * H))]
            self.start = torch.rand(T, B) < 0.3
            self.acts = torch.rand(T, B) < 0.6 if rests else None
        self.cell.to(dtype)
        self.inputs, self.state, self.counts = (each.to(dtype) for each in arrays)
        self.inputs.requires_grad_()
        self.state.requires_grad_()

    def given(self) -> tuple[Any, ...]:
        """What `unroll` of either kind takes."""
        return self.inputs, self.state, self.start, self.acts, *self.cell.parameters()

    def results(self, memory: Tensor) -> list[Tensor]:
        """The memory, and the gradients by all that it depends on."""
        by = [self.inputs, self.state, *self.cell.parameters()]
        return [memory.detach(), *torch.autograd.grad((memory * self.counts).sum(), by)]


def step_by_step(of: Sequences) -> Tensor:
    state, memory = of.state, []
    for t in range(len(of.inputs)):
        before = torch.where(of.start[t][:, None], 0, state)
        state = torch.cat(of.cell(of.inputs[t], before.tensor_split(2, 1)), 1)
        if of.acts is not None:
            state = torch.where(of.acts[t][:, None], state, before)
        memory.append(state)
    return torch.stack(memory)


def assert_alike(results: list[Tensor], expected: list[Tensor], within: float) -> None:
    """Each array by its own greatest number."""
    for result, exact in zip(results, expected, strict=True):
        assert (result - exact).abs().max() <= within * exact.abs().max()


@pytest.mark.parametrize("size", SIZES)
def test_torch_s_own_operations_are_the_cell_step_by_step(size: str) -> None:
    of = Sequences(size, torch.float64)
    assert_alike(of.results(reference.unroll(*of.given())), of.results(step_by_step(of)), 1e-13)


@pytest.mark.parametrize("size", SIZES)
def test_in_c_it_is_the_cell_step_by_step_and_the_same_bits_everywhere(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = Sequences(size, torch.float64)
    expected = exact.results(step_by_step(exact))
    found: list[list[Tensor]] = []
    for name in library.available():
        monkeypatch.setenv(library.SET_VARIABLE, name)
        monkeypatch.setattr(compiled, "find_functions", dense_library.functions)
        for threads in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            of = Sequences(size)
            found.append(of.results(compiled.unroll(*of.given())))
            with torch.no_grad():
                assert torch.equal(compiled.unroll(*of.given()), found[-1][0])
    assert_alike(found[0], expected, 2e-6)
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert torch.equal(one.view(torch.int32), same.view(torch.int32))


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    of = Sequences("parts")
    expected = of.results(compiled.unroll(*of.given()))
    of.inputs.requires_grad_(False)
    of.state.requires_grad_(False)
    memory = compiled.unroll(*of.given())
    (memory * of.counts).sum().backward()
    for parameter, gradient in zip(of.cell.parameters(), expected[3:], strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, gradient)
    assert of.inputs.grad is None and of.state.grad is None


def test_nobody_goes_back_over_a_tape_that_is_used_up() -> None:
    of = Sequences("small")
    memory = compiled.unroll(*of.given())
    memory.sum().backward(retain_graph=True)
    with pytest.raises(AssertionError, match="only once"):
        memory.sum().backward()


@pytest.mark.parametrize("where", ["inputs", "weight_hh"])
def test_what_is_no_number_stays_none(where: str) -> None:
    of = Sequences("small")
    with torch.no_grad():
        (of.inputs if where == "inputs" else of.cell.weight_hh)[0, 0] = torch.nan
        assert compiled.unroll(*of.given()).isnan().any()


def test_wide_ones_and_other_numbers_are_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def watch(kind: Any) -> None:
        def unroll(*given: Any) -> Tensor:
            used.append(kind.__name__.rpartition(".")[2])
            return real(*given)

        real = kind.unroll
        monkeypatch.setattr(kind, "unroll", unroll)

    watch(compiled)
    watch(reference)
    for width, dtype in ((128, torch.float32), (129, torch.float32), (4, torch.float64)):
        cell = nn.LSTMCell(2, width, dtype=dtype)
        lstm.unroll(
            cell, torch.zeros(3, 2, 2, dtype=dtype), torch.zeros(2, 2 * width, dtype=dtype), torch.zeros(3, 2) > 0
        )
    assert used == ["compiled", "reference", "reference"]
    empty = lstm.unroll(nn.LSTMCell(2, 4), torch.zeros(3, 0, 2), torch.zeros(0, 8), torch.zeros(3, 0) > 0)
    assert empty.shape == (3, 0, 8)


def test_without_a_library_torch_learns_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled.find_functions.cache_clear()
    monkeypatch.setattr(dense_library, "load", missing)
    try:
        of = Sequences("small")
        with caplog.at_level(logging.WARNING):
            found = [lstm.unroll(of.cell, of.inputs, of.state, of.start) for _ in range(2)]
        assert_alike(of.results(found[0]), of.results(step_by_step(of)), 2e-6)
        assert [record.getMessage() for record in caplog.records] == [
            "training LSTMs in torch, which is slower: there is no library"
        ]
    finally:
        compiled.find_functions.cache_clear()
