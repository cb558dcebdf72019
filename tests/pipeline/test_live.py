"""What only a tool can know."""

import pytest

from proxy.pipeline.decision.live import Live, live


@pytest.mark.parametrize(
    "text",
    [
        "Will it snow in Bergen tomorrow?",
        "EUR to USD",
        "Is flight KL1234 delayed?",
        "现在贵阳几度？",
        "英镑汇率",
        "Schneit es gerade in Davos?",
        "¿Va a llover en Vigo?",
        "Quel temps fait-il à Metz ?",
    ],
)
def test_weather_at_a_place_prices_and_flights_are_a_tools(text: str) -> None:
    assert live(text) is Live.SURE


@pytest.mark.parametrize(
    "text",
    [
        "What's the weather like?",
        "What's the forecast for Q3?",
        "How hot is the kiln in Leeds?",
        "What's the water temperature in Leo's tank?",
        "窑里温度多少？",
        "鱼缸现在几度？",
        "天气好的话去哪？",
        "想配副墨镜去三亚戴,左右眼多少度来着",
        "Is staging down right now?",
        "How much bitcoin does Leo have?",
        "王秀琴的生日是农历几月几号？",
        "combien de côté pour la toiture",
        "黄金买了多少克",
    ],
)
def test_weather_without_a_place_and_other_peoples_figures_are_not(text: str) -> None:
    assert live(text) is Live.NO


def test_the_seat_on_a_flight_is_likely_at_most() -> None:
    assert live("Flight BA 249, which seat?") is not Live.SURE
    assert live("Is flight BA 249 late?") is Live.SURE


def test_a_team_that_may_be_a_friends_is_likely_at_most() -> None:
    assert live("Hat Jonas gestern gewonnen?") is Live.LIKELY
