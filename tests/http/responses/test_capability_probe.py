"""What an answer says about the upstream, and what follows from it."""

import pytest

from proxy.http.responses.router import REPROBE_S, EndpointProbe, ResponsesMode, is_absence


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found", b"", b'{"detail":"Not Found"}',
        b'{"error":{"message":"Unknown request URL: POST /v1/responses.","code":"unknown_url","param":null}}',
        b'{"error":"Unexpected endpoint or method. (POST /v1/responses)"}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_404_that_is_about_the_route_means_that_there_is_none(body):
    assert is_absence(404, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"The model `x` does not exist or you do not have access to it.","param":null,'
        b'"code":"model_not_found"}}',
        b'{"error":{"message":"model \\"x\\" not found, try pulling it first","type":"api_error"}}',
        b'{"error":{"message":"Response with id \'resp_1\' not found.","code":404}}',
        b'{"error":{"message":"gone","code":"previous_response_not_found"}}',
    ],
)
def test_a_404_that_is_about_what_the_request_names_means_that_the_route_is_there(body):
    assert not is_absence(404, body)


@pytest.mark.parametrize(
    ("speech", "speaks"), [(ResponsesMode.NATIVE, True), (ResponsesMode.TRANSLATE, False)]
)
def test_a_setting_is_not_overruled(speech, speaks):
    hearing = EndpointProbe(speech)
    for status in (404, 200):
        assert not hearing.heard(status, b"", 0.0)
        assert hearing.speaks(10 * REPROBE_S) is speaks
