"""The opening screen of `memory-proxy serve`: what it does, where data lies, what is off, what to try."""

from proxy import __version__, telemetry
from proxy.app.admission import network_of
from proxy.app.open_stores import obstacle_of, place_of
from proxy.build import BUILD, COMMIT
from proxy.config import Identity, Settings
from proxy.domain.endpoint import endpoint


def open_with(settings: Settings, origin: str, embedder: str | None, *, judges: bool = True) -> None:
    """Say that the proxy serves: to people by the screen, on standard output; to whoever reads the log as
    JSON by one line of it, since a collector may be given both streams as one."""
    if settings.logging.format == "console":
        print(opening_screen(settings, origin, embedder, judges=judges), flush=True)
        return
    telemetry.log.info(
        "process.started",
        version=__version__,
        commit=COMMIT,
        address=origin,
        upstream=_upstream(settings) if settings.upstream.base_url else "scripted",
        data=place_of(settings),
        embeddings=settings.embedding.model if embedder != "" else None,
        judge=judges,
        memory=settings.memory.enabled,
        extraction=settings.memory.extraction,
        identity=settings.identity.mode,
        workers=settings.server.workers,
    )


def opening_screen(settings: Settings, origin: str, embedder: str | None, *, judges: bool = True) -> str:
    """Return the screen's text. `embedder`: what computes embeddings, "" for nothing, None if unknown.
    `judges`: whether the trained heads could be loaded, as far as is known."""
    memory = settings.memory
    rows = [
        ("Listening", f"{origin}/v1   ← your client's base_url{_everywhere(settings.server.host)}"),
        ("Upstream", _upstream(settings)),
        ("Data", _data(settings)),
        ("Embeddings", f"{settings.embedding.model}" + (f" ({embedder})" if embedder else "")),
        ("Extraction", _extraction(settings)),
        ("Identity", _identity(settings.identity)),
    ]
    if embedder == "":
        rows[3] = ("Embeddings", "OFF: lexical search only. `memory-proxy doctor` says how to get a model")
    if not judges:
        rows.insert(4, ("Judge", "OFF: memories are shown by their vectors alone. See memory-proxy doctor"))
    lines = ["", f"memory-proxy {BUILD}", ""]
    lines += [f"  {name:<11} {text}" for name, text in rows]
    off = _off(settings)
    lines += ["", *(f"  Off         {line}" for line in off)] if off else []
    lines += ["", "  Try", *(f"    {line}" for line in _try(origin, settings)), ""]
    lines += [
        f"  See, search and forget memories: {origin}/ui, or memory-proxy memory list --user alice",
        f"  Settings: --config FILE (see config/default.yaml). Health: {origin}/health",
        "",
    ]
    if not memory.enabled:
        lines.insert(
            3, "  MEMORY IS OFF unless a request sets memory_config.enabled (setting memory.enabled)"
        )
    return "\n".join(lines)


def _upstream(settings: Settings) -> str:
    if settings.upstream.base_url is None:
        return "a small scripted model, for trying things out"
    at = endpoint(settings.upstream.base_url)
    way = network_of(settings).described(at)
    return f"{at.shown}, {way}" if way else at.shown


def _everywhere(host: str) -> str:
    return " (and on every other address of this machine)" if host in ("0.0.0.0", "::") else ""


def _data(settings: Settings) -> str:
    place = place_of(settings)
    if why := obstacle_of(settings):
        return f"NOTHING IS REMEMBERED, requests pass without memory: {why}"
    return place if settings.storage.backend == "sqlite" else f"{place}, shared by all replicas"


def _extraction(settings: Settings) -> str:
    mode = settings.memory.extraction
    if mode == "off":
        return "off: nothing new is remembered (setting memory.extraction)"
    if mode == "verbatim":
        return "verbatim: the user's own statements, no model asked"
    configured = [m for m in settings.external_models if m.model_role == "memory_extraction"]
    if configured:
        at = endpoint(configured[0].llm_endpoint)
        way = network_of(settings).described(at)
        return f"by {configured[0].llm_model_name} at {at.shown}" + (f", {way}" if way else "")
    return "by the conversation's own model"


def _identity(identity: Identity) -> str:
    match identity.mode:
        case "open":
            return "open: the user_id of a request is believed"
        case "keys":
            return "keys: memory-proxy's own API keys (memory-proxy keys create)"
        case "jwt":
            return f"jwt: tokens for {identity.jwt_audience}, user = {identity.jwt_user_claim}"
        case "header":
            return f"header: {identity.user_header}, believed from {', '.join(identity.trusted_peers)}"


def _off(settings: Settings) -> list[str]:
    off = []
    if settings.upstream.base_url is None:
        off.append("a real model: --upstream http://127.0.0.1:11434/v1 (Ollama), https://…/v1")
    if settings.identity.mode == "open":
        off.append("authentication: keep this port to your own backend (mode open)")
    if not settings.identity.accept_openai_user:
        off.append("OpenAI's `user` field as identity: identity.accept_openai_user=true")
    return off


def _try(origin: str, settings: Settings) -> list[str]:
    model = "scripted-demo" if settings.upstream.base_url is None else "YOUR-MODEL"
    named, credential = ', "memory_context": {"user_id": "alice"}', ""
    if settings.identity.mode in ("keys", "jwt"):
        named, credential = "", " -H 'Authorization: Bearer YOUR-KEY'"
    return [
        f"curl {origin}/v1/chat/completions -H 'Content-Type: application/json'{credential} -d '{{",
        f'  "model": "{model}"{named},',
        '  "messages": [{"role": "user", "content": "My budget for the Hawaii trip is $10,000."}]}\'',
    ]
