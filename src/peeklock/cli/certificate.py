"""`peeklock certificate`: where the development authority is, and how clients come to trust it."""

from pathlib import Path
from typing import Final

from peeklock.cli import options
from peeklock.cli.output import TABLE, Output, fail, print_json

_HOW: Final = """\
The authority that signs this broker's certificate is

  {authority}

Clients that trust it can use TLS on every port. Each line is one way to tell them:

Python         ServiceBusClient.from_connection_string(..., connection_verify="{authority}")
               export REQUESTS_CA_BUNDLE="{authority}"   (the administration client)
               export SSL_CERT_FILE="{authority}"   (all that uses Python's own ssl)
               cat "{authority}" >> "$(python -m certifi)"   (Celery with Kombu)
JavaScript     export NODE_EXTRA_CA_CERTS="{authority}"
Java           keytool -importcert -noprompt -alias peeklock -file "{authority}" \\
                 -keystore peeklock.p12 -storetype PKCS12 -storepass changeit
               java -Djavax.net.ssl.trustStore=peeklock.p12 \\
                 -Djavax.net.ssl.trustStorePassword=changeit ...
.NET, Go       export SSL_CERT_FILE="{authority}"   (Linux; elsewhere the system's store)
curl           curl --cacert "{authority}" https://localhost:5300/health
Debian, Ubuntu sudo cp "{authority}" /usr/local/share/ca-certificates/peeklock.crt
               sudo update-ca-certificates
Fedora, RHEL   sudo trust anchor "{authority}"
macOS          sudo security add-trusted-cert -d -k /Library/Keychains/System.keychain "{authority}"
Windows        certutil -addstore -f Root "{authority}"

Its key lies beside it and can sign for any name: trust it for development only. For anything else
give your own certificate with --tls-certificate and --tls-key.
"""


def show(*, data: options.Data = Path("data"), output: Output = "table") -> None:
    """Print where the development authority is and how to trust it; it is made if it is missing."""
    from peeklock.clock import SystemClock
    from peeklock.gateway.listening.certificates import ensure_authority

    try:
        authority = ensure_authority(data, SystemClock().now()).resolve()
    except OSError as error:
        fail(f"there is no authority in {data}, and none can be made: {error}")
    if output != TABLE:
        print_json({"authority": str(authority)}, output)
        return
    import typer

    typer.echo(_HOW.format(authority=authority), nl=False)
