"""The official Java client: fetched by Maven into its own cache, run from source."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
_FETCHED_WITHIN_S: Final = 90


def java_client(program: str | Path) -> list[str]:
    """The command that runs a program, of this folder unless its whole path is given; skips the
    test where that is impossible."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("the Java client needs a JDK (17 or newer) and Maven, and they are not here")
    return [
        "java",
        # The programs are short: compiling them well costs more than it brings.
        "-XX:TieredStopAtLevel=1",
        *("-cp", _class_path()),
        str(_HERE / program),
    ]


def trusting(command: list[str], authority: Path, directory: Path) -> list[str]:
    """The command with a trust store of its own, made as `peeklock certificate` tells."""
    store = directory / "trust.p12"
    subprocess.run(
        [
            *("keytool", "-importcert", "-noprompt", "-alias", "peeklock"),
            *("-file", str(authority), "-keystore", str(store)),
            *("-storetype", "PKCS12", "-storepass", "changeit"),
        ],
        check=True,
        capture_output=True,
    )
    java, *rest = command
    trust = f"-Djavax.net.ssl.trustStore={store}"
    return [java, trust, "-Djavax.net.ssl.trustStorePassword=changeit", *rest]


@functools.cache
def _class_path() -> str:
    """Where the client's jars are; what was fetched before is not asked for again."""
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "classpath"
        command = [
            *("mvn", "--quiet", "--batch-mode", "--file", str(_HERE / "pom.xml")),
            *(_GOAL, f"-Dmdep.outputFile={told}"),
        ]
        for options in (["--offline"], []):
            try:
                done = subprocess.run(
                    [*command, *options],
                    capture_output=True,
                    text=True,
                    timeout=_FETCHED_WITHIN_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0 and told.exists():
                return told.read_text().strip()
    pytest.skip("Maven could not fetch the Java client; is Maven Central in reach?")
