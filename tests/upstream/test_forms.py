"""What is learnt of models: bounded, for a day, shared, and only what a refusal proves."""

import pytest

from proxy.upstream.forms import (
    DEFAULT,
    LEARNT_FOR_S,
    MAX_LEARNT,
    PLACEMENTS,
    Attempt,
    Form,
    Forms,
    Learning,
    ModelRoute,
    Refusal,
    RequestTraits,
    described,
    error_at_start,
    next_attempt,
    refusal_of,
)

M = ModelRoute("http://u/v1", "m")
IN_USER = Form(placement="in_user")
FIRST = Attempt(DEFAULT)


class StoredForms:
    """A store in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.saves = 0

    async def load(self) -> dict[str, str]:
        return dict(self.rows)

    async def save(self, rows: dict[str, str], most: int) -> None:  # type: ignore[override]
        self.saves += 1
        self.rows |= rows


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_what_is_learnt_holds_for_a_day_and_is_then_tried_again():
    clock = Clock()
    forms = Forms(clock)
    forms.learn(M, DEFAULT, IN_USER)
    clock.now += LEARNT_FOR_S - 1
    assert forms.of(M) == IN_USER
    clock.now += 1
    assert forms.of(M) == DEFAULT
    clock.now -= 10 * LEARNT_FOR_S  # a clock that was set back makes nothing last for ever
    assert forms.of(M) == DEFAULT


async def test_hundreds_of_models_are_learnt_and_forgotten_within_the_bound():
    clock, store = Clock(), StoredForms()
    forms = Forms(clock)
    for number in range(MAX_LEARNT + 100):
        forms.learn(ModelRoute(M.upstream, f"m{number}"), DEFAULT, IN_USER)
        forms.suspect(ModelRoute(M.upstream, f"s{number}"), PLACEMENTS)
    await forms.sync(store)
    assert len(store.rows) == len(forms._learnt) == len(forms._suspected) == MAX_LEARNT
    assert forms.of(ModelRoute(M.upstream, "m0")) == DEFAULT


async def test_two_processes_know_what_either_has_learnt_and_save_it_once():
    clock, store = Clock(), StoredForms()
    ours, theirs = Forms(clock), Forms(clock)
    ours.learn(M, DEFAULT, IN_USER)
    ours.learn(M, IN_USER, Form(placement="in_user", omit=("verbosity",)))
    for _ in range(3):
        await ours.sync(store)
    await theirs.sync(store)
    assert theirs.of(M) == Form(placement="in_user", omit=("verbosity",))
    assert store.saves == 1
    assert "omit=" in "".join(described(store.rows, clock.now))
    assert described(store.rows, clock.now + LEARNT_FOR_S) == []


def test_no_query_of_an_address_is_stored_or_logged():
    learning = Learning(Forms(Clock()), "https://host/v1?key=secret")
    assert learning.model("m", "chat").upstream == "https://host/v1"
    assert learning.model("m", "chat", "https://own/v1?key=secret").upstream == "https://own/v1"


WITH_MEMORY = RequestTraits(
    memory=True, movable=True, same_shape="in_user", written=frozenset({"temperature"})
)


@pytest.mark.parametrize(
    ("status", "body", "following"),
    [
        (400, b"", "in_user"),
        (422, b'{"detail": [{"loc": ["body", "messages", 3, "role"], "msg": "bad"}]}', "in_user"),
        (500, b'{"error": {"code": 500, "message": "Jinja Exception: roles must alternate"}}', "in_user"),
        (500, b'{"error": {"message": "out of memory"}}', None),
        (413, b"", "without"),
        (400, b'{"error": {"message": "Range of input length should be [1, 30720]"}}', "without"),
        (400, b'{"error": {"code": "model_not_found", "message": "no such model"}}', None),
        (400, b'{"error": {"param": "temperature", "message": "must be at most 2"}}', None),
    ],
)
def test_what_a_refusal_says_decides_how_to_continue(status, body, following):
    found = next_attempt(FIRST, WITH_MEMORY, refusal_of(status, body))
    assert (
        found
        == {"in_user": Attempt(IN_USER), "without": Attempt(DEFAULT, memory=False), None: None}[following]
    )


@pytest.mark.parametrize(
    "message", ["", "roles must alternate", "too many tokens", "Unknown parameter: 'user'"]
)
def test_however_it_is_refused_a_request_comes_to_its_end(message):
    request = RequestTraits(
        memory=True, movable=True, same_shape="merge_system", optional=frozenset({"user", "verbosity"}),
        limit="max_tokens", thoughts=True, tool_media=True,
    )  # fmt: skip
    attempt: Attempt | None = FIRST
    seen: list[Attempt] = []
    while attempt is not None:
        assert attempt not in seen
        seen.append(attempt)
        attempt = next_attempt(attempt, request, Refusal(400, message.lower()))
    assert len(seen) <= 6
    assert not seen[-1].memory


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b": OPENROUTER PROCESSING\n\n", None),
        (b': OPENROUTER PROCESSING\n\ndata: {"id": 1, "error": {"code": 400, "message": "x"}', None),
        (b'event: x\ndata: {"error": {"code": 429, "message": "slow down"}}\n\n', "answer"),
        (b'{"error": {"mess', "document"),
        (b'{"id": "chatcmpl-1", "object": "chat.completion", "created": 1234567890, ', "answer"),
        (b"\x1f\x8b\x08\x00\n\n", "answer"),
    ],
)
def test_the_beginning_of_an_answer_says_whether_it_is_one(head, found):
    assert error_at_start(head) == found
