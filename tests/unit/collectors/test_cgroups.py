"""Units and containers from control groups, as systemd, Docker, Podman, containerd and CRI-O write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.cgroups import read_cgroup, unit_and_container

ID = "0123456789ab" + "c" * 52


@pytest.mark.parametrize(
    ("text", "unit", "container"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service", ""),
        ("0::/system.slice/system-vllm.slice/vllm@qwen3.service\n", "vllm@qwen3.service", ""),
        ("0::/system.slice/vllm\\x2dprod.service\n", "vllm-prod.service", ""),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service\n",
            "llama.service",
            "",
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-kitty-7.scope\n", "", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "", ""),
        (f"0::/system.slice/docker-{ID}.scope\n", "", ID[:12]),
        (f"0::/docker/{ID}\n", "", ID[:12]),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "", ID[:12]),
        (f"0::/system.slice/vllm.service/libpod-payload-{ID}\n", "vllm.service", ID[:12]),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-pod1_2.slice/cri-containerd-{ID}.scope\n",
            "",
            ID[:12],
        ),
        (f"0::/kubepods/besteffort/pod12-34/{ID}\n", "", ID[:12]),
        (f"0::/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope\n", "", ID[:12]),
        (f"12:devices:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/x\n", "", ID[:12]),
        ("1:name=systemd:/system.slice/vllm.service\n0::/\n", "vllm.service", ""),
        ("0::/\n", "", ""),
        ("", "", ""),
        ("0::/system.slice/x\x1b[31m.service\n", "x\ufffd[31m.service", ""),
    ],
)
def test_whose_a_process_is(text: str, unit: str, container: str, tmp_path: Path) -> None:
    assert read_cgroup(text) == (unit, container)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert unit_and_container(tmp_path, 7) == (unit, container)


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert unit_and_container(tmp_path, 7) == ("", "")
