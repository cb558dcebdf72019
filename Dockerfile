# docker build -t memory-proxy --build-arg COMMIT=$(git rev-parse HEAD) .
# docker run -p 127.0.0.1:8080:8080 -v memory:/data memory-proxy --allow-open --upstream URL
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY scripts/fetch-models scripts/fetch-models
COPY proxy proxy
RUN pip install --no-cache-dir --constraint requirements.lock ".[otel]" && python scripts/fetch-models
# Debian has a user `proxy` already.
RUN useradd --create-home memory && mkdir /data && chown memory /data
USER memory
# For every command, so that `docker exec NAME memory-proxy doctor` (keys, backup, ...) means the same store.
ENV MEMORY_PROXY__SERVER__HOST=0.0.0.0 MEMORY_PROXY__STORAGE__DATA_DIR=/data
VOLUME /data
EXPOSE 8080
# Which commit this is, for /health and --version: after what takes long to build, so that it is not built again.
ARG COMMIT=""
ENV MEMORY_PROXY_COMMIT=$COMMIT
HEALTHCHECK --interval=10s --timeout=4s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
# In identity mode `open` every client that reaches the port is trusted, so it starts only with --allow-open, for
# ports that are published to a trusted network; elsewhere set another mode: -e MEMORY_PROXY__IDENTITY__MODE=keys
ENTRYPOINT ["memory-proxy", "serve"]
