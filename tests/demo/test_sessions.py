"""The scripted model in the roles that look at whole sessions: the proxy takes its answers."""

from proxy.demo.sessions import keep_state, sum_up
from proxy.learn.session import state, summarise
from tests.learn.support import exchange

SESSION = (
    exchange("My budget for the Hawaii trip is $10,000.", "Noted."),
    exchange("I live in Madison, Wisconsin. Is that far?", "Rather.", seq=2),
)


def test_its_summary_passes_the_check() -> None:
    found = summarise.read(sum_up([summarise.request(SESSION).user]), SESSION, None)
    assert found is not None
    assert "$10,000" in found.content


def test_its_state_is_read() -> None:
    found = state.read(keep_state([state.request(None, SESSION).user]))
    assert found is not None
    assert "$10,000" in str(found)
