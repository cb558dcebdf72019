# docker build -t memory-proxy .
# (with --build-arg MODELS=multilingual: multilingual-e5-small, too)
# docker run -p 127.0.0.1:8080:8080 -v memory:/data memory-proxy --allow-open --upstream URL
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY scripts/fetch-models scripts/fetch-models
COPY proxy proxy
ARG MODELS=""
RUN pip install --no-cache-dir --constraint requirements.lock ".[fleet,otel]" && python scripts/fetch-models $MODELS
RUN useradd --create-home proxy && mkdir /data && chown proxy /data
USER proxy
VOLUME /data
EXPOSE 8080
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
# In identity mode `open` whoever reaches the port is believed, so it starts with --allow-open only, which is for
# ports that are published to a trusted network; elsewhere take another mode: -e MEMORY_PROXY__IDENTITY__MODE=keys
ENTRYPOINT ["memory-proxy", "serve", "--host", "0.0.0.0", "--data-dir", "/data"]
