"""contrib/: the alerts and the board ask for metrics that a scrape has, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cache import place_of
from tests.server.conftest import Start
from tests.server.monitoring.test_metrics import Watched
from tests.server.monitoring.test_metrics_queues import spend
from tests.until import until

CONTRIB: Final = Path(__file__).parents[3] / "contrib"
RULES: Final = CONTRIB / "prometheus/tidelog.rules.yml"
BOARD: Final = json.loads((CONTRIB / "grafana/tidelog.json").read_text())
ALERTS: Final[list[dict[str, Any]]] = import_module("yaml").safe_load(RULES.read_text())["groups"][
    0
]["rules"]
QUERIES: Final = [
    re.sub(r"\$instance", ".*", target["expr"].replace("$__rate_interval", "5m"))
    for panel in BOARD["panels"]
    for target in panel["targets"]
]
# What makes each alert fire: a series, and its values, one a minute. In a rule with a ratio the second one is the rest.
PLANTED: Final = {
    "TidelogDown": {'up{job="tidelog"}': "0x30"},
    "TidelogLogFailed": {"tidelog_log_failed": "1x30"},
    "TidelogWritesRefused": {"tidelog_log_refuses_writes": "1x30"},
    "TidelogStoreFull": {"tidelog_disk_full": "1x30"},
    "TidelogWritersWait": {"tidelog_memory_writers_wait": "1x30"},
    "TidelogNoWorkers": {"tidelog_queue_waiting": "3x30", "tidelog_queue_workers": "0x30"},
    "TidelogJobsLate": {"tidelog_queue_waiting": "3x30", "tidelog_queue_oldest_seconds": "901x30"},
    "TidelogLinkDown": {"tidelog_link_up": "0x30"},
    "TidelogFollowerBehind": {"tidelog_follower_lag_seconds": "11x30"},
    "TidelogHandlersHang": {"tidelog_queue_hanging": "1x30"},
    "TidelogJobsDie": {"tidelog_queue_died_total": "0+1x30"},
    "TidelogCheckpointFailed": {"tidelog_checkpoint_failed": "1x30"},
    "TidelogLogBehindCheckpoint": {"tidelog_log_bytes_since_checkpoint": "1073741825x30"},
    "TidelogDiskSlow": {
        'tidelog_fsync_duration_seconds_bucket{le="0.1"}': "0+97x30",
        'tidelog_fsync_duration_seconds_bucket{le="0.5"}': "0+100x30",
        'tidelog_fsync_duration_seconds_bucket{le="+Inf"}': "0+100x30",
    },
    "TidelogNotAlways": {'tidelog_log_fsync_policy{policy="everysec"}': "1x30"},
    "TidelogClientsFull": {"tidelog_connected_clients": "91x30", "tidelog_clients_max": "100x30"},
    "TidelogSurplus": {"tidelog_replication_surpluses": "1x30"},
}
WELL: Final = {
    'up{job="tidelog"}': "1x30",
    "tidelog_log_failed": "0x30",
    "tidelog_log_refuses_writes": "0x30",
    "tidelog_disk_full": "0x30",
    "tidelog_memory_writers_wait": "0x30",
    "tidelog_queue_waiting": "3x30",
    "tidelog_queue_workers": "1x30",
    "tidelog_queue_oldest_seconds": "899x30",
    "tidelog_link_up": "1x30",
    "tidelog_follower_lag_seconds": "10x30",
    "tidelog_queue_hanging": "0x30",
    "tidelog_queue_died_total": "7x30",
    "tidelog_checkpoint_failed": "0x30",
    "tidelog_log_bytes_since_checkpoint": "1073741824x30",
    'tidelog_fsync_duration_seconds_bucket{le="0.1"}': "0+100x30",
    'tidelog_fsync_duration_seconds_bucket{le="+Inf"}': "0+100x30",
    'tidelog_log_fsync_policy{policy="always"}': "1x30",
    "tidelog_connected_clients": "90x30",
    "tidelog_clients_max": "100x30",
    "tidelog_replication_surpluses": "0x30",
}


def named(expressions: list[str]) -> set[str]:
    return {name for each in expressions for name in re.findall(r"\btidelog_\w+", each)}


def test_alerts_and_board_name_real_metrics(start: Start) -> None:
    """Those of a leader with a queue and a follower, and of the follower."""
    leader = Watched(start)
    spend(leader)
    leader.ask("NEVER")
    follower = Watched(start, replicaof=f"127.0.0.1 {leader.running.port}")
    until(lambda: follower.value("link_up") == 1, "it does not follow")
    board = [each["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    wanted = named([*(rule["expr"] for rule in ALERTS), *QUERIES, *board])
    assert len(wanted) > 20

    def missing() -> set[str]:
        there = {f"tidelog_{name}" for each in (leader, follower) for name, _ in each.samples()}
        return wanted - there

    # Some figures are taken once a second.
    until(lambda: not missing(), f"no scrape has {missing()}")


def test_every_query_of_the_board_has_a_place_of_its_own() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


@pytest.fixture
def promtool() -> Path:
    """That of the machine, or out of Debian's package, which is not installed since it starts a server."""
    if found := shutil.which("promtool"):
        return Path(found)
    with place_of("promtool") as (place, missing):
        if missing:
            done = subprocess.run(
                "apt-get update -qq && apt-get download -qq prometheus"
                " && dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && rm prometheus_*.deb",
                shell=True, cwd=place, capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                pytest.fail(f"no promtool, and no package with it:\n{done.stderr}", pytrace=False)
    return place / "usr/bin/promtool"


def checked(promtool: Path, *words: str | Path) -> str:
    done = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_prometheus_takes_the_alerts_and_the_queries(promtool: Path, tmp_path: Path) -> None:
    assert f"{len(ALERTS)} rules found" in checked(promtool, "check", "rules", RULES)
    queries = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    rules = tmp_path / "board.yml"
    rules.write_text(json.dumps({"groups": [{"name": "board", "rules": queries}]}))
    assert f"{len(QUERIES)} rules found" in checked(promtool, "check", "rules", rules)


@pytest.mark.slow
def test_each_alert_fires_alone(promtool: Path, tmp_path: Path) -> None:
    """And none while all is well, each figure at its bound. `promtool test rules` evaluates them."""
    assert set(PLANTED) == {rule["alert"] for rule in ALERTS}
    cases = tmp_path / "cases.yml"

    def case(name: str, series: dict[str, str]) -> dict[str, Any]:
        return {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": key, "values": text} for key, text in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "20m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}]
                    if series is not WELL
                    else [],
                }
            ],
        }

    tests = [case(name, series) for name, series in PLANTED.items()] + [case("well", WELL)]
    cases.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in checked(promtool, "test", "rules", cases)
