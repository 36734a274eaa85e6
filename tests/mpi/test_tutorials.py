"""What PyTorch's tutorials on RPC do, their imports changed, on small data of the same shapes.

They are written as a user of PyTorch would have them: `args` as lists, methods of modules passed as
functions, modules sent by value, devices chosen.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensorplay as torch
import tensorplay.distributed.autograd as dist_autograd
import tensorplay.nn.functional as F  # noqa: N812  # as everybody has it
from mpi.conftest import RpcWorld
from tensorplay import nn, optim
from tensorplay.distributed import rpc
from tensorplay.distributed.optim import DistributedOptimizer
from tensorplay.distributed.rpc import RRef
from tensorplay.distributions import Categorical

pytestmark = pytest.mark.mpi


def call_method(method: Any, rref: Any, *args: Any, **kwargs: Any) -> Any:
    return method(rref.local_value(), *args, **kwargs)


def remote_method(method: Any, rref: Any, *args: Any, **kwargs: Any) -> Any:
    args = [method, rref, *args]  # type: ignore[assignment]
    return rpc.rpc_sync(rref.owner(), call_method, args=args, kwargs=kwargs)


def parameter_rrefs(module: nn.Module) -> list[RRef[Any]]:
    return [RRef(param) for param in module.parameters()]


# -- Implementing a parameter server --------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        assert "cuda" not in str(device)
        self.conv1 = nn.Conv2d(1, 4, 3, 1).to(device)
        self.conv2 = nn.Conv2d(4, 8, 3, 1).to(device)
        self.dropout1 = nn.Dropout2d(0.05).to(device)
        self.dropout2 = nn.Dropout2d(0.05).to(device)
        self.fc1 = nn.Linear(128, 32).to(device)
        self.fc2 = nn.Linear(32, 4).to(device)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x), inplace=True), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = x.to(next(self.fc1.parameters()).device)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


class ParameterServer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = Net()
        self.input_device = torch.device("cpu")

    def forward(self, x: Any) -> Any:
        return self.model(x.to(self.input_device)).to("cpu")

    def get_dist_gradients(self, cid: int) -> dict[Any, Any]:
        grads = dist_autograd.get_gradients(cid)
        return {k.to("cpu"): v.to("cpu") for k, v in grads.items()}

    def get_param_rrefs(self) -> list[RRef[Any]]:
        return parameter_rrefs(self.model)


param_server: ParameterServer | None = None
global_lock = threading.Lock()


def get_parameter_server() -> ParameterServer:
    global param_server
    with global_lock:
        if param_server is None:
            param_server = ParameterServer()
        return param_server


class TrainerNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.param_server_rref = rpc.remote("parameter_server", get_parameter_server)

    def forward(self, x: Any) -> Any:
        return remote_method(ParameterServer.forward, self.param_server_rref, x)


def images(count: int, seed: int) -> torch.utils.data.TensorDataset:
    """Noise with a bright bar, whose place is the class."""
    torch.manual_seed(seed)
    target = torch.randint(0, 4, (count,))
    data = torch.randn(count, 1, 12, 12) * 0.1
    for i, k in enumerate(target.tolist()):
        data[i, 0, 3 * k : 3 * k + 2] += 1.0
    return torch.utils.data.TensorDataset(data, target)


@pytest.mark.filterwarnings("ignore:dropout2d")
@pytest.mark.ranks(2, 3)
def test_parameter_server(world: RpcWorld) -> None:
    global param_server
    param_server = None
    if world.rank == 0:
        rpc.init_rpc(name="parameter_server", rank=0, world_size=world.size)
        rpc.shutdown(timeout=30)
        return
    rpc.init_rpc(name=f"trainer_{world.rank}", rank=world.rank, world_size=world.size)
    net = TrainerNet()
    param_rrefs = remote_method(ParameterServer.get_param_rrefs, net.param_server_rref)
    opt = DistributedOptimizer(optim.SGD, param_rrefs, lr=0.3)
    loader = torch.utils.data.DataLoader(images(320, world.rank), batch_size=16, shuffle=True)
    for data, target in loader:
        with dist_autograd.context() as cid:
            output = net(data)
            loss = F.nll_loss(output, target.to(output.device))
            dist_autograd.backward(cid, [loss])
            grads = remote_method(ParameterServer.get_dist_gradients, net.param_server_rref, cid)
            assert len(grads) == len(param_rrefs)
            opt.step(cid)
    test_loader = torch.utils.data.DataLoader(images(64, 99), batch_size=32)
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            pred = net(data).argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    assert correct > 0.8 * len(test_loader.dataset)
    rpc.shutdown(timeout=30)


# -- Implementing batch RPC processing using asynchronous executions ------------------------------


class BatchUpdateParameterServer:
    def __init__(self, batch_update_size: int) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
        self.lock = threading.Lock()
        self.future_model = torch.futures.Future()
        self.batch_update_size = batch_update_size
        self.curr_update_size = 0
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p)

    def get_model(self) -> Any:
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch_model(ps_rref: Any, grads: list[Any]) -> Any:
        self = ps_rref.local_value()
        with self.lock:
            for p, g in zip(self.model.parameters(), grads, strict=True):
                p.grad += g
            self.curr_update_size += 1
            fut = self.future_model
            if self.curr_update_size >= self.batch_update_size:
                for p in self.model.parameters():
                    p.grad /= self.batch_update_size
                self.curr_update_size = 0
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                fut.set_result(self.model)
                self.future_model = torch.futures.Future()
        return fut


def run_trainer(ps_rref: Any, steps: int) -> list[float]:
    torch.manual_seed(rpc.get_worker_info().id)
    loss_fn = nn.MSELoss()
    one_hot_indices = torch.empty(20, dtype=torch.long).random_(0, 3).view(20, 1)
    inputs = torch.randn(20, 6)
    labels = torch.zeros(20, 3).scatter_(1, one_hot_indices, 1)
    m = ps_rref.rpc_sync().get_model().cpu()
    losses = []
    for _ in range(steps):
        loss = loss_fn(m(inputs), labels)
        loss.backward()
        losses.append(loss.item())
        m = rpc.rpc_sync(
            ps_rref.owner(),
            BatchUpdateParameterServer.update_and_fetch_model,
            args=(ps_rref, [p.grad for p in m.cpu().parameters()]),
        ).cpu()
    return losses


@pytest.mark.ranks(2, 4)
def test_batch_processing(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    trainers = range(1, rpc_world.size)
    ps_rref = RRef(BatchUpdateParameterServer(len(trainers)))
    futs = [rpc.rpc_async(k, run_trainer, args=(ps_rref, 20)) for k in trainers]
    for losses in torch.futures.wait_all(futs):
        assert losses[-1] < 0.7 * losses[0]


# -- Distributed pipeline parallelism --------------------------------------------------------------


class Shard(nn.Module):
    def __init__(self, device: str, *layers: nn.Module) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self.device = device
        self.seq = nn.Sequential(*layers).to(device)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x_rref: Any) -> Any:
        x = x_rref.to_here().to(self.device)
        with self._lock:
            return self.seq(x).cpu()

    def parameter_rrefs(self) -> list[RRef[Any]]:
        return parameter_rrefs(self)


class Shard1(Shard):
    def __init__(self, device: str) -> None:
        norm = nn.BatchNorm2d(8)
        conv = nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1, bias=False)
        super().__init__(device, conv, norm, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))


class Shard2(Shard):
    def __init__(self, device: str) -> None:
        head = nn.Linear(8, 5)
        super().__init__(device, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), head)


class DistNet(nn.Module):
    def __init__(self, split_size: int, workers: list[int]) -> None:
        super().__init__()
        self.split_size = split_size
        self.p1_rref = rpc.remote(workers[0], Shard1, args=("cpu",))
        self.p2_rref = rpc.remote(workers[1], Shard2, args=("cpu",))

    def forward(self, xs: Any) -> Any:
        out_futures = []
        for x in iter(xs.split(self.split_size, dim=0)):
            y_rref = self.p1_rref.remote().forward(RRef(x))
            out_futures.append(self.p2_rref.rpc_async().forward(y_rref))
        return torch.cat(torch.futures.wait_all(out_futures))

    def parameter_rrefs(self) -> list[RRef[Any]]:
        remote_params = self.p1_rref.remote().parameter_rrefs().to_here()
        return [*remote_params, *self.p2_rref.remote().parameter_rrefs().to_here()]


@pytest.mark.ranks(2, 3)
def test_pipeline(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    torch.manual_seed(2)
    model = DistNet(4, [1, rpc_world.size - 1])
    opt = DistributedOptimizer(optim.SGD, model.parameter_rrefs(), lr=0.3)
    inputs = torch.randn(12, 3, 16, 16)
    one_hot_indices = torch.empty(12, dtype=torch.long).random_(0, 5).view(12, 1)
    labels = torch.zeros(12, 5).scatter_(1, one_hot_indices, 1)
    losses = []
    for _ in range(10):
        with dist_autograd.context() as context_id:
            loss = nn.MSELoss()(model(inputs), labels)
            dist_autograd.backward(context_id, [loss])
            opt.step(context_id)
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


# -- Getting started: a recurrent network ----------------------------------------------------------


class EmbeddingTable(nn.Module):
    def __init__(self, ntoken: int, ninp: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, input: Any) -> Any:
        return self.drop(self.encoder(input)).cpu()


class Decoder(nn.Module):
    def __init__(self, ntoken: int, nhid: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, output: Any) -> Any:
        return self.decoder(self.drop(output))


class RNNModel(nn.Module):
    def __init__(self, ps: int, ntoken: int, ninp: int, nhid: int, nlayers: int) -> None:
        super().__init__()
        self.emb_table_rref = rpc.remote(ps, EmbeddingTable, args=(ntoken, ninp, 0.0))
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=0.0)
        self.decoder_rref = rpc.remote(ps, Decoder, args=(ntoken, nhid, 0.0))

    def forward(self, input: Any, hidden: Any) -> Any:
        emb = remote_method(EmbeddingTable.forward, self.emb_table_rref, input)
        output, hidden = self.rnn(emb, hidden)
        return remote_method(Decoder.forward, self.decoder_rref, output), hidden

    def parameter_rrefs(self) -> list[RRef[Any]]:
        return [
            *remote_method(parameter_rrefs, self.emb_table_rref),
            *parameter_rrefs(self.rnn),
            *remote_method(parameter_rrefs, self.decoder_rref),
        ]


@pytest.mark.ranks(2)
def test_recurrent_network(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        return
    torch.manual_seed(3)
    batch, ntoken, nhid, nindices, nlayers = 5, 7, 8, 3, 2
    hidden = (torch.randn(nlayers, nindices, nhid), torch.randn(nlayers, nindices, nhid))
    model = RNNModel(0, ntoken, 4, nhid, nlayers)
    opt = DistributedOptimizer(optim.Adam, model.parameter_rrefs(), lr=0.05)
    criterion = torch.nn.CrossEntropyLoss()
    data = torch.randint(ntoken, (batch, nindices))
    target = ((data + 1) % ntoken).view(-1)
    losses = []
    for _ in range(40):
        with dist_autograd.context() as context_id:
            hidden[0].detach_()
            hidden[1].detach_()
            output, hidden = model(data, hidden)
            loss = criterion(output.view(-1, ntoken), target)
            dist_autograd.backward(context_id, [loss])
            opt.step(context_id)
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


# -- Getting started: reinforcement learning -------------------------------------------------------


class Observer:
    """Sees which of two signs is shown; one action is right for each."""

    def __init__(self) -> None:
        self.id = rpc.get_worker_info().id
        self.random = np.random.default_rng(self.id)

    def run_episode(self, agent_rref: Any, n_steps: int) -> None:
        for _ in range(n_steps):
            right = int(self.random.integers(2))
            state = np.eye(2)[right]
            action = remote_method(Agent.select_action, agent_rref, self.id, state)
            remote_method(Agent.report_reward, agent_rref, self.id, float(action == right))


class Agent:
    def __init__(self, world_size: int) -> None:
        torch.manual_seed(4)
        self.agent_rref = RRef(self)
        self.policy = nn.Sequential(nn.Linear(2, 8), nn.Dropout(p=0.1), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = optim.Adam(self.policy.parameters(), lr=3e-2)
        observers = [rpc.get_worker_info(f"worker{k}") for k in range(1, world_size)]
        self.ob_rrefs = [rpc.remote(info, Observer) for info in observers]
        self.rewards: dict[int, list[float]] = {info.id: [] for info in observers}
        self.saved_log_probs: dict[int, list[Any]] = {info.id: [] for info in observers}

    def select_action(self, ob_id: int, state: Any) -> int:
        probs = F.softmax(self.policy(torch.from_numpy(state).float().unsqueeze(0)), dim=1)
        m = Categorical(probs)
        action = m.sample()
        self.saved_log_probs[ob_id].append(m.log_prob(action))
        return action.item()

    def report_reward(self, ob_id: int, reward: float) -> None:
        self.rewards[ob_id].append(reward)

    def run_episode(self, n_steps: int) -> None:
        futs = [
            rpc.rpc_async(
                ob_rref.owner(),
                call_method,
                args=(Observer.run_episode, ob_rref, self.agent_rref, n_steps),
            )
            for ob_rref in self.ob_rrefs
        ]
        for fut in futs:
            fut.wait()

    def finish_episode(self) -> float:
        log_probs = [one for own in self.saved_log_probs.values() for one in own]
        rewards = torch.tensor([one for own in self.rewards.values() for one in own])
        for ob_id in self.rewards:
            self.rewards[ob_id], self.saved_log_probs[ob_id] = [], []
        returns = (rewards - rewards.mean()) / (rewards.std() + np.finfo(np.float32).eps.item())
        policy_loss = [-log_prob * R for log_prob, R in zip(log_probs, returns, strict=True)]
        self.optimizer.zero_grad()
        torch.cat(policy_loss).sum().backward()
        self.optimizer.step()
        return rewards.mean().item()


@pytest.mark.ranks(2, 3)
def test_reinforcement_learning(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    agent = Agent(rpc_world.size)
    means = []
    for _ in range(20):
        agent.run_episode(n_steps=24 // (rpc_world.size - 1))
        means.append(agent.finish_episode())
    assert max(means[-3:]) > 0.9
