from ray_canal.binlog.sample import decode_sample
from ray_canal.kernels.warm import warm


def test_sample_decodes() -> None:
    info, chunk = decode_sample()
    assert info.failure is None
    assert chunk.events["event_type"].tolist() == [1, 0]
    assert chunk.events["aux"].tolist() == [1, 9]
    number, text = chunk.layout.tables[0].after
    assert chunk.arena[number.values : number.values + 4].view("<i4")[0] == 7
    assert chunk.arena[text.data : text.data + text.data_bytes].tobytes() == b"null"


def test_warm_kernels_are_quick() -> None:
    warm()
    assert warm() < 1.0
