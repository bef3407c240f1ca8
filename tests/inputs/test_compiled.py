"""Parts that are compiled for training on a GPU, with a stand-in for the compiler."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from matchlight.inputs import compiled
from matchlight.inputs.compiled import QuickInTraining, compile_training, is_wanted


class Doubles(compiled.Compiles):
    """One layer, of which it says that it is worth compiling."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.layer(x)

    def compile_training(self) -> None:
        self.layer.forward = QuickInTraining(self.layer, self.layer.forward, dynamic=None)  # type: ignore[method-assign]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran compiled; every device counts as a GPU here."""
    ran: list[str] = []

    def stand_in(part, *, dynamic):
        def run(*given):
            ran.append("compiled")
            return part(*given)

        return run

    def pays(self: QuickInTraining, *given: object) -> bool:
        return self.module.training and torch.is_grad_enabled() and not QuickInTraining.failed

    monkeypatch.setattr(torch, "compile", stand_in)
    monkeypatch.setattr(QuickInTraining, "failed", False)
    monkeypatch.setattr(QuickInTraining, "_pays", pays)
    return ran


def test_parts_run_compiled_in_training_and_plain_in_evaluation(calls: list[str]) -> None:
    network, x = Doubles(), torch.ones(2, 3)
    plain = network(x)
    compile_training(nn.Sequential(network))
    assert torch.equal(network.train()(x), plain) and calls == ["compiled"]
    assert torch.equal(network.eval()(x), plain) and calls == ["compiled"]
    with torch.no_grad():
        assert torch.equal(network.train()(x), plain) and calls == ["compiled"]


def test_on_a_cpu_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> torch.Tensor:
        raise AssertionError("compiled on a CPU")

    monkeypatch.setattr(torch, "compile", lambda part, *, dynamic: never)
    network = Doubles().train()
    compile_training(network)
    assert network(torch.ones(2, 3)).shape == (2, 3)


def test_a_copy_of_a_compiled_network_trains_its_own_weights(calls: list[str]) -> None:
    network = Doubles().train()
    compile_training(network)
    again = copy.deepcopy(network)
    with torch.no_grad():
        again.layer.weight.zero_()
        again.layer.bias.zero_()
    assert again(torch.ones(2, 3)).abs().max() == 0 and calls == ["compiled"]
    assert network(torch.ones(2, 3)).abs().max() > 0


def test_where_compiling_fails_training_goes_on_and_it_is_said_once(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: object) -> torch.Tensor:
        raise RuntimeError("no compiler here\nand a long story")

    monkeypatch.setattr(torch, "compile", lambda part, *, dynamic: broken)
    network = Doubles().train()
    compile_training(network)
    for _ in range(3):
        assert network(torch.ones(2, 3)).shape == (2, 3)
    told = capsys.readouterr().err
    assert told.count("steps are not compiled here (no compiler here)") == 1


def test_only_long_trainings_on_a_gpu_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    assert is_wanted(gpu, compiled.PAYS) and not is_wanted(gpu, compiled.PAYS - 1)
    assert not is_wanted(torch.device("cpu"), 10**6)
    monkeypatch.setenv("MATCHLIGHT_COMPILE", "0")
    assert not is_wanted(gpu, 10**6)
