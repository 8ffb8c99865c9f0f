"""The jobs, unchanged, by `spark-submit` on a standalone master with two workers."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

import peeklock.spark.jobs
from bench.spark_cluster import StandaloneCluster
from tests.spark.spark_broker import Bus

JOBS = Path(peeklock.spark.jobs.__file__).parent


@pytest.mark.torture
@pytest.mark.timeout(400)
def test_jobs_are_submitted_to_a_cluster_unchanged(bus: Bus, tmp_path: Path) -> None:
    """R-D6: the files that `peeklock pipeline` runs are the files that a cluster runs."""
    queue = bus.queue()
    bus.send(queue, [f"body {number}" for number in range(300)])
    reach = ("--connection-string", bus.connection_string)
    with StandaloneCluster(tmp_path / "spark", memory="1g") as cluster:
        lake = tmp_path / "lake"
        captured = cluster.submit(JOBS / "capture.py", queue, *reach, "--out", str(lake))
        assert captured.returncode == 0, captured.stderr[-4000:]
        ids = DeltaTable(str(lake)).to_pyarrow_table(columns=["message_id"])["message_id"]
        assert sorted(ids.to_pylist()) == sorted(f"m-{number}" for number in range(300))
        audited = cluster.submit(
            JOBS / "audit.py", "--entity", queue, *reach, "--out", str(tmp_path / "audit")
        )
        assert audited.returncode == 0, audited.stderr[-4000:]
    assert bus.peek(queue) == []
