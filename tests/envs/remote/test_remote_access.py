"""Who is let in at a server, to what, and for how much there is room."""

import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import env_spec, wait_until
from remote_servers import (  # noqa: F401
    CARTPOLE,
    COUNTING,
    WORKERS,
    N,
    Raw,
    play,
    remote,
    serve_fixture,
    undisturbed_fixture,
)
from vector_cases import workers_of

from paddock.envs.errors import ConfigError
from paddock.envs.remote.offer import FACTORY_ID
from paddock.envs.remote.versions import read_versions
from paddock.envs.vector import EnvError
from paddock.envs.vector.remote import make_endpoint

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'paddock[remote]'")

from paddock import serve as serving  # noqa: E402
from paddock.envs.remote import security  # noqa: E402
from paddock.envs.remote.client import endpoint  # noqa: E402
from paddock.health import server as health  # noqa: E402

# (g), (j) Room


def test_there_is_room_for_so_many_and_health_answers_all_the_same(serve: Any) -> None:
    server = serve(COUNTING, max_sessions=3)
    raws = [Raw(server) for _ in range(3)]
    channels = [raw.attach() for raw in [*raws, *raws, *raws]]
    for _ in range(20):
        with pytest.raises(
            endpoint.ConnectionLost, match=r"EXHAUSTED: 6 of 12 environments and 3 of 3 sessions are in use"
        ):
            Raw(server)
    with pytest.raises(ConfigError, match=r"vec.num_envs=13 is more than the 12 environments of the server"):
        remote(server.address, num_envs=13).make(COUNTING)
    with security.connect(server.address, None, {}) as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=5) == b"\x08\x01"
    for channel in channels:
        channel.close()
    with pytest.raises(ConfigError, match=f"^cannot listen at serve.address={server.address}: it may be in use"):
        serve(COUNTING, address=server.address)


def test_the_doctor_says_what_a_server_is_at(serve: Any) -> None:
    server = serve(COUNTING)
    with closing(remote(server.address).make(COUNTING)) as venv:
        venv.begin(1)
        venv.step(np.zeros(N, np.int64))
        [(_, finding)] = health.check_server(remote(server.address, num_envs=8))
        assert finding.level == "warn" and "6 of 12 environments free" in finding.text
        server._offer["versions"] = {"numpy": "1.0"}
        [(_, finding)] = health.check_server(remote(server.address))
        assert finding.level == "warn" and f"numpy 1.0 there and {np.__version__} here" in finding.text
    server.close()
    [(_, finding)] = health.check_server(remote(server.address))
    assert finding.level == "FAIL" and "cannot be reached" in finding.text
    with pytest.raises(ConfigError, match=r"serve\.adress is not a key of .*; did you mean 'serve\.address'"):
        serving.start(["env=cartpole", "vec=serial", "serve.adress=127.0.0.1:0"])


# (h) Who is let in


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a certificate of it for a server, and one for a client; and another authority."""
    folder = tmp_path_factory.mktemp("keys")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    try:
        for name in ("ca", "other"):
            openssl("req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    except FileNotFoundError:
        pytest.skip("there is no openssl")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    for name in ("server", "client"):
        openssl("req", "-new", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    shutil.copy(folder / "server.key", folder / "old.key")
    openssl("x509", "-req", "-in", "server.csr", *signed, "-days", "-1", "-out", "old.pem")
    return folder


def tls_of(keys: Path, name: str, ca: str = "ca") -> dict[str, str]:
    return {"ca": str(keys / f"{ca}.pem"), "cert": str(keys / f"{name}.pem"), "key": str(keys / f"{name}.key")}


def test_only_who_has_the_token_is_let_in(serve: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("PADDOCK_TOKEN", raising=False)
    token = tmp_path / "token"
    server = serve(COUNTING, token_file=str(token))
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text().strip()) >= 32
    with closing(remote(server.address, token_file=str(token)).make(COUNTING)) as venv:
        venv.begin(1)
    other = tmp_path / "other"
    security.make_token(str(other))
    for given in (None, str(other)):
        with pytest.raises(ConfigError, match="the token is not the server's") as caught:
            remote(server.address, token_file=given).make(COUNTING)
        assert other.read_text().strip() not in str(caught.value)
    token.chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others"):
        remote(server.address, token_file=str(token)).make(COUNTING)
    with pytest.raises(ConfigError, match="tokens are not sent without encryption"):
        make_endpoint("10.1.2.3:3003", str(other), {}, 0.0).connect("10.1.2.3:3003")
    for short in (b"short", b"\0" * 64):
        other.write_bytes(short)
        with pytest.raises(ConfigError, match="at least 32 printable"):
            remote(server.address, token_file=str(other)).make(COUNTING)


def test_calls_that_never_send_their_request_block_nobody(serve: Any, tmp_path: Path) -> None:
    token, never = tmp_path / "token", threading.Event()
    server = serve(COUNTING, token_file=str(token))

    def requests() -> Iterator[bytes]:
        never.wait()
        yield b""

    with grpc.insecure_channel(server.address) as stranger:
        for name in ("/grpc.health.v1.Health/Check", *(f"/{security.SERVICE}/{name}" for name in ("Open", "Describe"))):
            call = stranger.stream_unary(name)
            calls = [call.future(requests()) for _ in range(200)]
            with closing(remote(server.address, token_file=str(token)).make(COUNTING)) as venv:
                venv.begin(1)
            never.set()
            for call in calls:
                error = call.exception(60)
                assert error is None or error.code() is grpc.StatusCode.UNAUTHENTICATED
            never.clear()


def test_a_server_for_other_machines_needs_a_token_and_encryption(serve: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("PADDOCK_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"open to other machines; set serve.token_file and serve.tls.cert and .key"):
        serve(COUNTING, address="0.0.0.0:0")
    assert serve(COUNTING, address="0.0.0.0:0", insecure=True).address


def test_certificates_are_asked_for_and_checked(serve: Any, keys: Path) -> None:
    server = serve(COUNTING, tls=tls_of(keys, "server"))
    with pytest.raises(EnvError, match=r"or set vec.tls.ca for TLS"):
        remote(server.address, wait_s=0.0).endpoint().offers()
    with closing(remote(server.address, tls=tls_of(keys, "client")).make(COUNTING)) as venv:
        assert venv.begin(1)[0].shape == (N, 3)
    for tls in ({"ca": str(keys / "ca.pem")}, tls_of(keys, "client", ca="other"), {}):
        with pytest.raises(EnvError, match="cannot be reached"):
            remote(server.address, tls=tls, wait_s=0.0).make(COUNTING)
    with pytest.raises(EnvError, match="cannot be reached"):
        expired = serve(COUNTING, tls={"cert": str(keys / "old.pem"), "key": str(keys / "old.key")})
        remote(expired.address, tls={"ca": str(keys / "ca.pem")}, wait_s=0.0).make(COUNTING)
    pair = {"cert": str(keys / "ca.pem"), "key": str(keys / "ca.pem")}
    with pytest.raises(ConfigError, match=r"key=.*ca.pem cannot be used"):
        serve(COUNTING, tls=pair)
    with pytest.raises(ConfigError, match="cert and key go together"):
        remote(server.address, tls={"cert": str(keys / "ca.pem")}).make(COUNTING)


# (i) What is served


def test_what_is_asked_for_must_be_what_is_served(serve: Any, monkeypatch: Any) -> None:
    server = serve(COUNTING)
    with pytest.raises(ConfigError, match=r"env.id=CartPole-v1 here, and Counting-v0 at vec.address=.*env=remote"):
        remote(server.address).make(CARTPOLE)
    with pytest.raises(ConfigError, match=r"env.fresh=True here, and False at"):
        remote(server.address).make(env_spec("Counting-v0", fresh=True))
    other = serve(CARTPOLE)
    with pytest.raises(ConfigError, match="serve different versions of CartPole-v1"):
        remote(server.address, other.address).make(COUNTING)
    monkeypatch.setattr(endpoint, "PROTOCOL", 9)
    with pytest.raises(ConfigError, match="the client uses protocol 9, this server 12; install the same version"):
        remote(server.address).make(COUNTING)


@pytest.mark.parametrize(
    "given, said",
    [
        (
            {"max_episode_steps": 3},
            r"^env\.max_episode_steps=3 is not applied .* server with env\.max_episode_steps=3$",
        ),
    ],
)
def test_what_a_server_would_not_apply_is_refused(serve: Any, given: Any, said: str) -> None:
    server = serve(env_spec("CartPole-v1", max_episode_steps=7))
    any_served = env_spec(FACTORY_ID, kwargs={"address": server.address})
    with pytest.raises(ConfigError, match=said):
        remote(server.address).check(replace(any_served, **given).in_training())
    for same in ({}, {"max_episode_steps": 7}, {"training": {"max_episode_steps": 7}}):
        remote(server.address).check(replace(any_served, **same).in_training())


def test_servers_have_the_packages_with_which_the_run_began(serve: Any, undisturbed: str) -> None:
    older = {**read_versions(), "numpy": "1.0"}
    servers = [serve(COUNTING), serve(COUNTING)]
    servers[1]._offer["versions"] = older
    addresses = [server.address for server in servers]
    other = rf"numpy 1.0 there and {np.__version__} at {addresses[0]}; install the same there, or set vec.same_versions"
    with pytest.raises(ConfigError, match=other) as caught:
        remote(*addresses).make(COUNTING)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"{addresses[1]}: numpy 1.0 there and {np.__version__} here"):
        remote(addresses[1], same_versions="here").make(COUNTING)
    with closing(remote(*addresses, same_versions="none").make(COUNTING)) as venv:
        assert play(venv) == undisturbed
    with closing(remote(addresses[0]).make(COUNTING)) as venv:
        venv.begin(1)
        servers[0].close()
        serve(COUNTING, address=addresses[0])._offer["versions"] = older
        with pytest.raises(ConfigError, match=other):
            venv.step(np.zeros(N, np.int64))
    began = {"a:1": {"numpy": "1.1", "mujoco": "4.0"}}
    with pytest.raises(ConfigError, match=r"numpy 1.0 there and 1.1 when the run began at a:1.*; install"):
        remote(addresses[1]).versions(began)
    assert remote(addresses[1], same_versions="none").versions(began) == {addresses[1]: older}


def test_a_socket_on_this_machine_is_its_owners_alone(serve: Any, tmp_path: Path) -> None:
    serve(COUNTING, address=f"unix:{tmp_path}/env")
    assert stat.S_IMODE((tmp_path / "env").stat().st_mode) == 0o600


def test_a_socket_is_taken_from_nobody_who_listens_there(serve: Any, tmp_path: Path) -> None:
    server = serve(COUNTING, address=f"unix:{tmp_path}/env")
    with pytest.raises(ConfigError, match=r"cannot listen at serve.address=unix:.*/env: it may be in use"):
        serve(COUNTING, address=server.address)
    with closing(remote(server.address).make(COUNTING)) as venv:
        assert venv.begin(1)[0].shape == (N, 3)
    server.close()
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(f"{tmp_path}/env")  # as a server leaves it that was killed
    serve(COUNTING, address=server.address)


def test_addresses_of_every_kind(serve: Any, tmp_path: Path, monkeypatch: Any, undisturbed: str) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    addresses = [f"unix:{tmp_path}/env", "127.0.0.1:0"]
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists() and Path("/proc/net/if_inet6").read_text():
        addresses.append("[::1]:0")
    for address in addresses:
        with closing(remote(serve(COUNTING, address=address).address).make(COUNTING)) as venv:
            assert play(venv) == undisturbed
    for wrong in ("here", "1.2.3.4:", "a:b", "::1:3003", "unix:"):
        with pytest.raises(ConfigError, match=r"^vec\.address=.* must be HOST:PORT"):
            remote(wrong).make(COUNTING)
        with pytest.raises(ConfigError, match=r"^serve\.address=.* must be HOST:PORT"):
            serve(COUNTING, address=wrong)


def test_nothing_is_left_of_a_server_and_its_clients(serve: Any) -> None:
    before = {thread.name for thread in threading.enumerate()}
    server = serve(CARTPOLE, WORKERS)
    venv = remote(server.address).make(CARTPOLE)
    venv.begin(1)
    [session] = server.sessions._sessions.values()
    workers = workers_of(session.venv)
    venv.step(np.zeros(N, np.int64))
    venv.close()
    assert not any(worker.is_running() for worker in workers) and server.sessions.rows == 0
    server.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), 1.0)
    ours = {"frames", "heartbeat", "leases", "session_0", "session_1"}
    wait_until(lambda: not ({thread.name for thread in threading.enumerate()} - before) & ours)
