# A broker that listens like the official emulator: AMQP on 5672, HTTP on 5300, and its Config.json
# where the emulator has it. It is for development and tests: it serves the well-known key.
#
#   docker build --tag peeklock .
#   docker run --publish 5672:5672 --publish 5300:5300 peeklock
FROM python:3.11 AS build
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE constraints.txt ./
COPY src src
RUN pip wheel --no-cache-dir --constraint constraints.txt --wheel-dir /wheels .

FROM python:3.11-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels peeklock && rm -rf /wheels \
    && useradd --create-home peeklock \
    && mkdir /data && chown peeklock /data
COPY examples/container/Config.json /ServiceBus_Emulator/ConfigFiles/Config.json
USER peeklock
VOLUME /data
ENV PEEKLOCK_HOST=0.0.0.0 \
    PEEKLOCK_DATA=/data \
    PEEKLOCK_CONFIG=/ServiceBus_Emulator/ConfigFiles/Config.json \
    PEEKLOCK_ALLOW_DEVELOPMENT_KEY=1
EXPOSE 5672 5300
HEALTHCHECK --interval=5s --timeout=3s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:5300/ready', timeout=2)"]
ENTRYPOINT ["peeklock"]
CMD ["serve"]
