"""Feature files: lazy, exact, and with errors that name the study whatever the bytes are."""

import mmap
import re
import struct
import zipfile
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from rrg_rewards.utilities import features as module
from rrg_rewards.utilities.features import FEATURE_ENDINGS, FeatureError, check_features, read_features, write_features

SHAPE = (3, 4, 5, 6)


def example(dtype=np.float16, shape=SHAPE):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def is_mapped(array):
    while array is not None:
        # The storage of a tensor is that of the file.
        if isinstance(array, mmap.mmap | torch.Tensor):
            return True
        array = getattr(array, "base", None)
    return False


def save_npz(path, **arrays):
    np.savez(path, **arrays)


def save_compressed(path, **arrays):
    np.savez_compressed(path, **arrays)


def save(path, array):
    """Save any array as others would."""
    if path.suffix == ".npz":
        np.savez(path, arr=array)
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        save_file({"arr": torch.from_numpy(array)}, path)


@pytest.fixture(params=FEATURE_ENDINGS)
def path(request, tmp_path):
    return tmp_path / f"train_1_a_1{request.param}"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("lead", [(), (1,)])
def test_features_of_each_kind_are_read_bit_for_bit_and_mapped(path, dtype, lead):
    features = example(dtype)
    save(path, features.reshape(*lead, *SHAPE))
    read = read_features(path, channels=6, check_finite=True)
    assert read.dtype == dtype
    assert read.tobytes() == features.tobytes()
    assert is_mapped(read)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("lead", [(), (1,)])
def test_features_that_are_written_are_aligned_and_others_read_them(tmp_path, dtype, lead):
    features = example(dtype)
    write_features(tmp_path / "a.npz", features.reshape(*lead, *SHAPE))
    read = read_features(tmp_path / "a.npz")
    assert read.flags.aligned
    assert is_mapped(read)
    with np.load(tmp_path / "a.npz") as archive:
        np.testing.assert_array_equal(archive["arr"], features[None])
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("save", [save_npz, save_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_features_archives_of_numpy_are_read_and_mapped_where_they_are_stored(tmp_path, save, order):
    features = np.asarray(example(np.float32)[None], order=order)
    save(tmp_path / "a.npz", other=np.arange(5), arr=features, third=np.zeros(3))
    read = read_features(tmp_path / "a.npz")
    np.testing.assert_array_equal(read, features[0])
    assert is_mapped(read) == (save is save_npz)


def test_features_mapping_reads_no_more_than_what_is_used(path):
    save(path, np.zeros((64, 64, 64, 64), np.float16))

    def mapped_kilobytes():
        """Resident size of the mappings of the file."""
        maps = Path("/proc/self/smaps")
        if not maps.exists():
            pytest.skip("resident memory is read from /proc")
        block = re.search(rf"{re.escape(str(path))}\n.*?Rss:\s+(\d+) kB", maps.read_text(), re.DOTALL)
        return int(block[1])

    read = read_features(path, channels=64, check_finite=False)
    assert read.nbytes == 2**25
    assert mapped_kilobytes() < 2**12
    read.sum()
    assert mapped_kilobytes() > 2**14


def test_features_writing_to_what_was_read_leaves_the_file_as_it_is(path):
    save(path, example())
    before = path.read_bytes()
    read_features(path)[:] = 0
    assert path.read_bytes() == before
    # Torch warns of arrays that must not be written to.
    assert torch.from_numpy(read_features(path)).shape == SHAPE


@pytest.mark.parametrize("name", ["arr", "tokens"])
def test_features_bfloat16_becomes_float32_exactly(tmp_path, name):
    features = torch.randn(1, *SHAPE, generator=torch.Generator().manual_seed(0)).bfloat16()
    save_file({name: features}, tmp_path / "a.safetensors", metadata={"encoder": "ct-vit"})
    read = read_features(tmp_path / "a.safetensors")
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, features[0].float().numpy())


def refused(path, match, **arguments):
    with pytest.raises(FeatureError, match=match) as error:
        read_features(path, **arguments)
    assert str(error.value).startswith(f"features of {path.stem}: {path}: ")


def test_features_missing_file_and_a_folder_are_named_with_the_study(path):
    refused(path, "no such file")
    path.mkdir()
    refused(path, "is not a file")


@pytest.mark.parametrize("name", ["a.pt", "a"])
def test_features_unknown_ending_lists_those_that_are_known(tmp_path, name):
    refused(tmp_path / name, r"is not a format of features; use one of \.npz, \.npy, \.safetensors")


def test_features_wrong_key_lists_the_keys_that_are_there(tmp_path):
    np.savez(tmp_path / "a.npz", tokens=example(), other=example())
    refused(tmp_path / "a.npz", "no array 'arr'; it contains: tokens, other")
    np.savez(tmp_path / "b.npz")
    refused(tmp_path / "b.npz", "it contains: nothing")
    save_file({"x": torch.zeros(1), "y": torch.zeros(1)}, tmp_path / "a.safetensors")
    refused(tmp_path / "a.safetensors", "no tensor 'arr'; it contains: x, y")
    save_file({}, tmp_path / "b.safetensors")
    refused(tmp_path / "b.safetensors", "it contains: nothing")


@pytest.mark.parametrize("shape", [(6,), (5, 6), (4, 5, 6), (2, 3, 4, 5, 6), (1, 1, 3, 4, 5, 6), (0, 4, 5, 6), ()])
def test_features_another_number_of_axes_is_refused_with_the_shape(path, shape):
    save(path, np.zeros(shape, np.float32))
    refused(path, re.escape(f"must have the shape (D, H, W, C) or (1, D, H, W, C), none of them 0, got {shape}"))


def test_features_another_width_is_refused_with_both(path):
    save(path, example())
    refused(path, "expected tokens of width 512, found 6", channels=512)


@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.uint8, np.bool_])
def test_features_another_type_is_refused(path, dtype):
    save(path, np.zeros(SHAPE, dtype))
    refused(path, "must be float16.* float32.*, got")


@pytest.mark.parametrize("dtype", [">f2", "c8", "V2", "U3"])
def test_features_other_byte_orders_and_types_of_numpy_are_refused(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.zeros(SHAPE, dtype))
    refused(tmp_path / "a.npy", "must be float16 or float32, got")


class Trap:
    """Fails the test where it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "z.npz"])
def test_features_objects_are_refused_and_never_loaded(tmp_path, name):
    array = np.empty(SHAPE, object)
    array[...] = Trap()
    if name.startswith("z"):
        np.savez_compressed(tmp_path / name, arr=array)
    else:
        save(tmp_path / name, array)
    refused(tmp_path / name, "contains Python objects, which are never loaded")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_what_is_not_finite_is_refused_unless_asked_for(path, value):
    features = example()
    features[2, 1, 0, 3] = value
    save(path, features)
    assert read_features(path, check_finite=False).shape == SHAPE
    refused(path, "contains NaN or infinity")


def test_features_small_archive_that_expands_to_much_is_refused_by_its_declared_size(tmp_path, monkeypatch):
    path = tmp_path / "study.npz"
    save_compressed(path, arr=np.zeros((64, 64, 64, 8), np.float16))
    assert path.stat().st_size < 2**14
    assert read_features(path, max_bytes=None).nbytes == 2**22
    refused(path, r"bytes expand to 4,194,\d+, more than max_bytes=4,194,304", max_bytes=2**22)
    monkeypatch.setattr(module, "MAX_EXPANDED_BYTES", 2**22)
    with pytest.raises(FeatureError, match=r"features of study: .* more than max_bytes"):
        check_features(path)


def test_features_zip_of_another_kind_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("arr.npy", b"no array")
    refused(tmp_path / "a.npz", "damaged or truncated")
    (tmp_path / "b.npz").write_bytes(b"no archive")
    refused(tmp_path / "b.npz", "damaged or truncated")


@pytest.mark.parametrize("damage", [(b"(1,", b"(01"), (b"{'", b",'"), (b"<f2", b"<f9"), (b"False", b"Fa(se")])
def test_features_headers_of_numpy_that_make_no_sense_are_refused(tmp_path, damage):
    np.save(tmp_path / "a.npy", example()[None])
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes().replace(*damage))
    refused(tmp_path / "b.npy", "damaged or truncated")


def test_features_stored_member_whose_shape_does_not_fit_is_refused(tmp_path):
    write_features(tmp_path / "a.npz", example())
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        content = archive.read("arr.npy")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("arr.npy", content[:-2])
        archive.writestr("more", b"\0" * 1000)
    refused(tmp_path / "b.npz", "does not fit")
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr.npy", content + b"\0\0")
    refused(tmp_path / "c.npz", "does not fit")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"arr": 3}',
        b'{"arr": {"dtype": "F16"}}',
        b'{"arr": {"dtype": "F16", "shape": [-1, 1, 1, -1], "data_offsets": [0, 2]}}',
        b'{"arr": {"dtype": "F16", "shape": [1, 1, 1, 1], "data_offsets": [0, 4]}}',
        b'{"arr": {"dtype": "F16", "shape": [1, 1, 1, 1], "data_offsets": [-2, 0]}}',
        b'{"arr": {"dtype": ["F16"], "shape": [1, 1, 1, 1], "data_offsets": [0, 2]}}',
        b"{",
        b"\xff\xff",
    ],
)
def test_features_headers_of_safetensors_that_make_no_sense_are_refused(tmp_path, header):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)
    refused(path, "damaged|does not fit|must be|impossible")


def test_features_header_that_claims_to_be_huge_is_not_read(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    refused(path, "damaged")


SMALL = example(np.float16, (1, 2, 2, 2, 3))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind, its bytes and a path for damaged copies."""
    folder = tmp_path_factory.mktemp("features")
    write_features(folder / "written.npz", SMALL)
    np.save(folder / "array.npy", SMALL)
    np.savez(folder / "stored.npz", arr=SMALL, other=np.arange(4))
    np.savez_compressed(folder / "compressed.npz", arr=SMALL)
    save_file({"arr": torch.from_numpy(SMALL).bfloat16().half()}, folder / "library.safetensors")
    return [(path.read_bytes(), path.with_stem(f"{path.stem}_damaged")) for path in sorted(folder.iterdir())]


def test_features_file_cut_anywhere_is_refused_or_exact(files):
    for content, path in files:
        path.write_bytes(content)
        whole = read_features(path).tobytes()
        for length in range(len(content)):
            path.write_bytes(content[:length])
            try:
                read = read_features(path)
            except FeatureError as error:
                assert str(error).startswith(f"features of {path.stem}: {path}: ")  # noqa: PT017
            else:
                assert read.tobytes() == whole


@given(data=st.data())
def test_features_file_with_other_bytes_raises_nothing_else(files, data):
    content, path = data.draw(st.sampled_from(files))
    damaged = bytearray(content)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)))):
        damaged[place] = byte
    path.write_bytes(damaged)
    try:
        read = read_features(path)
    except FeatureError:
        return
    assert read.ndim == 4
    assert read.dtype in (np.float16, np.float32)


@given(content=st.binary(max_size=200), ending=st.sampled_from(FEATURE_ENDINGS))
def test_features_any_bytes_at_all_raise_nothing_else(tmp_path_factory, content, ending):
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    path.write_bytes(content)
    with pytest.raises(FeatureError):
        read_features(path)


@pytest.mark.parametrize(
    ("features", "match"),
    [
        (np.zeros((2, 2, 2, 2)), "must be float16 or float32, got <f8"),
        (np.zeros((2, 2, 2), np.float16), r"must have the shape"),
        (np.zeros((2, 0, 2, 2), np.float16), r"must have the shape"),
    ],
)
def test_features_what_could_not_be_read_is_not_written(tmp_path, features, match):
    path = tmp_path / "a.npz"
    with pytest.raises(FeatureError, match=match):
        write_features(path, features)
    assert not path.exists()


def test_features_missing_folder_is_named(tmp_path):
    with pytest.raises(FeatureError, match=r"the folder .*missing does not exist"):
        write_features(tmp_path / "missing" / "a.npz", example())


def test_features_failed_write_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write_features(path, example())
    before = path.read_bytes()

    class Full(FileIO):
        def write(self, data):
            super().write(data[: len(data) // 2])
            raise OSError("no space left on device")

    open_path = module.Path.open
    monkeypatch.setattr(
        module.Path, "open", lambda self, mode="r": open_path(self, mode) if mode == "rb" else Full(self, mode)
    )
    with pytest.raises(OSError, match="no space"):
        write_features(path, np.zeros(SHAPE, np.float16))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_features_equal_features_make_equal_files(tmp_path):
    path = tmp_path / "a.npz"
    write_features(path, example())
    before = path.read_bytes()
    write_features(path, example())
    assert path.read_bytes() == before


def test_features_check_tells_a_damaged_directory_by_the_study(tmp_path):
    path = tmp_path / "train_1_a_1.npz"
    write_features(path, example())
    check_features(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"PK\x01\x02", b"PK\x00\x00"))
    assert zipfile.is_zipfile(path)
    with pytest.raises(FeatureError, match=r"features of train_1_a_1: .*damaged or truncated"):
        check_features(path)
