"""`peeklock certificate`: says where the authority is, and makes it for whoever asks first."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peeklock.cli.main import app


@pytest.mark.parametrize("by_variable", [False, True])
def test_it_tells_where_the_authority_is_and_how_to_trust_it(
    tmp_path: Path, by_variable: bool
) -> None:
    arguments = [] if by_variable else ["--data", str(tmp_path)]
    environment = {"PEEKLOCK_DATA": str(tmp_path)} if by_variable else {}
    done = CliRunner().invoke(app, ["certificate", *arguments], env=environment)
    assert done.exit_code == 0
    authority = tmp_path / "tls" / "ca.pem"
    assert authority.exists()
    ways = (
        f'connection_verify="{authority}"',
        f'REQUESTS_CA_BUNDLE="{authority}"',
        f'SSL_CERT_FILE="{authority}"',
        f'NODE_EXTRA_CA_CERTS="{authority}"',
        "keytool -importcert",
        "update-ca-certificates",
    )
    assert [way for way in ways if way not in done.output] == []


def test_programs_get_the_path(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["certificate", "--data", str(tmp_path), "-o", "json"])
    assert json.loads(done.output) == {"authority": str(tmp_path / "tls" / "ca.pem")}


def test_a_directory_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["certificate", "--data", str(tmp_path / "file" / "data")])
    assert done.exit_code == 1
    assert "none can be made" in done.stderr
