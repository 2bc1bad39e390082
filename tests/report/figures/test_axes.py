import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookalike.report.figures.axes import COSINES, FRACTIONS, INTEGERS, PLAIN, epochs, linear, logarithmic, marked


def values_within(low, high):
    """A few values, near each other as often as not."""
    one = st.floats(low, high)
    close = st.tuples(one, st.floats(0, 1e-4)).map(lambda pair: [pair[0], min(high, pair[0] + pair[1])])
    return st.one_of(st.lists(one, min_size=1, max_size=5), close)


SCALED = [(FRACTIONS, 0, 1), (COSINES, -1, 1), (PLAIN, -1e12, 1e12), (PLAIN, 0, 10), (INTEGERS, 1, 4096)]


@pytest.mark.parametrize(("scale", "least", "most"), SCALED)
@given(data=st.data(), zero=st.booleans())
def test_axes_span_their_values_with_a_few_round_ticks_that_differ(scale, least, most, data, zero):
    values = data.draw(values_within(least, most))
    axis = linear(values, scale, zero=zero)
    tiny = 1e-9 * max(abs(axis.low), abs(axis.high))
    assert axis.low - tiny <= min(values) <= max(values) <= axis.high + tiny
    assert axis.high - axis.low >= 0.999 * scale.span
    assert scale.low - tiny <= axis.low < axis.high <= scale.high + tiny
    assert 2 <= len(axis.ticks) <= 8
    texts = [text for _, text in axis.ticks]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 12
    assert not zero or axis.low <= 0 <= axis.high


def test_ticks_are_written_with_the_decimals_they_need():
    def texts(*values, scale=FRACTIONS, **options):
        return [text for _, text in linear(values, scale, **options).ticks]

    assert texts(0.5, 0.5008) == ["49.0%", "49.5%", "50.0%", "50.5%", "51.0%", "51.5%"]
    assert texts(1.0, zero=True) == ["0%", "25%", "50%", "75%", "100%"]
    assert texts(1.0) == ["98.0%", "98.5%", "99.0%", "99.5%", "100.0%"]
    assert texts(1234.1, 1234.4, scale=PLAIN)[:2] == ["1,220", "1,225"]
    assert texts(0, 80_000, scale=PLAIN) == ["0k", "20k", "40k", "60k", "80k"]


def test_other_axes():
    assert [text for _, text in epochs([1, 2, 3]).ticks] == ["1", "2", "3"]
    assert epochs([7]).ticks == [(7, "7")]
    assert epochs([7]).low < epochs([7]).high == 7  # at the end, beside its label
    assert [text for _, text in epochs(range(1, 41)).ticks] == ["5", "10", "15", "20", "25", "30", "35", "40"]
    assert [tick for tick, _ in marked([128, 512, 128], str, "bits").ticks] == [128, 512]
    assert [tick for tick, _ in logarithmic([1, 64], str, "").ticks] == pytest.approx([1, 2, 5, 10, 20, 50])
    assert len(logarithmic([1e-9, 1e12], str, "").ticks) <= 6
    assert [tick for tick, _ in logarithmic([7], str, "").ticks] == [7]
    assert [tick for tick, _ in logarithmic([7, 8], str, "").ticks] == [7, 8]
    assert [text for _, text in epochs([1, 100_000]).ticks] == ["20000", "40000", "60000", "80000", "100000"]
