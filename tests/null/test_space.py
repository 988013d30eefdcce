"""Search-space files, and the counting, numbering and sampling of their valid points."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import archs, defaults, space
from autotune.errors import InfeasibleError, SpaceError
from autotune.problems import family
from autotune.region import Region
from autotune.types import Config

TINY = """
kernel = "sgemm"
starts = ["one"]
adaptable = ["b"]
[parameters.a]
values = [1, 2, 3, 4]
meaning = "a"
[parameters.b]
values = [1, 2, 4]
default = 4
meaning = "b"
[parameters.c]
values = ["x", "y"]
meaning = "c"
[parameters.d]
values = [0, 1, 2]
meaning = "d"
[derived]
area = { value = "a * b", meaning = "area" }
[[constraints]]
name = "small"
rule = "area <= 8"
why = "an area of {area} is more than 8"
[[constraints]]
name = "only x"
rule = "c == 'x' or a % 2 == 0"
why = "c = {c} needs an even a, not {a}"
[[constraints]]
name = "fits m"
rule = "b <= m"
why = "b = {b} is more than m = {m}"
[[launches]]
entry = "k"
grid = ["a", "1", "1"]
block = ["32", "b", "1"]
shared_bytes = "4 * area"
arguments = [{ kind = "operand", name = "a" }, { kind = "int32", name = "m" },
  { kind = "float32", name = "beta", when = "not beta_zero" }]
[presets.one]
a = 2
[presets.two]
base = "one"
c = "y"
"""


@pytest.fixture
def problem():
    return family("sgemm").parse("2x4x8")


def load(tmp_path, text):
    file = tmp_path / "space.toml"
    file.write_text(text)
    return space.load("sgemm", str(file))


def brute(tiny, problem):
    """Every valid point, by trying all."""
    names = [parameter.name for parameter in tiny.parameters]
    points = itertools.product(*(parameter.values for parameter in tiny.parameters))
    configs = (Config(dict(zip(names, point, strict=True))) for point in points)
    return {config for config in configs if tiny.is_valid(config, problem, 75)}


def test_region_counts_and_lists_what_trying_all_finds(tmp_path, problem):
    tiny = load(tmp_path, TINY)
    region = tiny.region(problem, 75)
    valid = brute(tiny, problem)
    assert tiny.raw_size == 72
    assert region.size == len(valid) == 36
    assert set(region.unrank(range(region.size))) == valid
    with pytest.raises(IndexError):
        region.unrank([region.size])


def test_removed_counts_each_constraint(tmp_path, problem):
    region = load(tmp_path, TINY).region(problem, 75)
    rows = {row[0].name: row[1:] for row in region.removed(alone=True)}
    # small: a x b above 8 only for (3, 4) and (4, 4); only x: a odd with y; fits m: b = 4,
    # where a is 1 or 2 by the first rule: (1, x), (2, x), (2, y) with three values of d.
    assert rows == {"small": (12, 0), "only x": (18, 12), "fits m": (24, 9)}


def test_sample_is_without_repeats_and_fair(tmp_path, problem):
    region = load(tmp_path, TINY).region(problem, 75)
    rng = np.random.default_rng(0)
    assert len(set(region.sample(100, rng))) == region.size
    exclude = set(region.sample(30, rng))
    rest = region.sample(100, rng, exclude=exclude)
    assert len(rest) == region.size - 30 and not exclude & set(rest)
    counts = {}
    for _ in range(3000):
        for config in region.sample(2, rng):
            counts[config] = counts.get(config, 0) + 1
    expected = 6000 / region.size
    assert all(abs(count - expected) < 6 * math.sqrt(expected) for count in counts.values())
    assert len(counts) == region.size


def test_neighbours_differ_in_that_many_parameters(tmp_path, problem):
    tiny = load(tmp_path, TINY)
    region = tiny.region(problem, 75)
    valid = brute(tiny, problem)
    config = tiny.preset("one").but(b=2)
    for changes in (1, 2):
        expected = {c for c in valid if sum(c[n] != config[n] for n in c) == changes}
        assert set(region.neighbours(config, changes)) == expected


def test_explain_gives_the_reason_with_values(tmp_path, problem):
    tiny = load(tmp_path, TINY)
    assert tiny.explain(tiny.preset("one").but(b=2), problem, 75) is None
    assert tiny.explain(tiny.preset("one"), problem, 75) == "b = 4 is more than m = 2"
    assert tiny.explain(Config({"a": 2}), problem, 75) == "the config does not name b"
    wrong = tiny.preset("one").but(c="z")
    assert tiny.explain(wrong, problem, 75) == "c = 'z' is not in the space"
    with pytest.raises(InfeasibleError, match=r"sgemm/2x4x8/nn on sm_75: b = 4 is more than m = 2"):
        tiny.check(tiny.preset("one"), problem, 75)


def test_fitted_lowers_what_may_be_lowered(tmp_path, problem):
    tiny = load(tmp_path, TINY)
    assert tiny.fitted(tiny.preset("one"), problem, 75) == tiny.preset("one").but(b=2)
    assert tiny.fitted(tiny.preset("one").but(a=3, c="y"), problem, 75) is None
    assert tiny.start_configs(problem, 75) == [tiny.preset("one").but(b=2)]


def test_plan(tmp_path, problem):
    tiny = load(tmp_path, TINY)
    (launch,) = tiny.plan(tiny.preset("two"), problem, 75).launches
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2, 1, 1), (32, 4, 1), 32)
    assert [(a.kind, a.name, a.value) for a in launch.arguments] == [
        ("operand", "a", 0),
        ("int32", "m", 2),
    ]


def test_every_fault_of_a_file_is_named_with_the_file(tmp_path):
    for change, complaint in [
        (("a * b", "a * bb"), "unknown name 'bb'"),
        (("area <= 8", "areas <= 8"), "unknown name 'areas'"),
        (("area <= 8", "area.__class__"), "not allowed"),
        (("area <= 8", "area / 8"), "write //"),
        (("of {area}", "of {arena}"), "unknown name 'arena'"),
        (("a = 2", "q = 2"), "'q' is not a parameter"),
        (("a = 2", "a = 9"), "a = 9 is not in the space"),
        (("a = 2", "a = true"), "a = True is not in the space"),
        (('starts = ["one"]', 'starts = ["none"]'), "'none', which is not a preset"),
        (('adaptable = ["b"]', 'adaptable = ["z"]'), "'z', which is not a parameter"),
        (('base = "one"', 'base = "three"'), "'three' must come before"),
        (("[1, 2, 3, 4]", "[]"), "the space is empty"),
        (("[1, 2, 3, 4]", "[1, 1]"), "must be different"),
        (("[1, 2, 3, 4]", '[1, "2"]'), "of one type"),
        (("[1, 2, 3, 4]", "[1.5]"), "neither a whole number nor a text"),
        (("default = 4", "default = 5"), "the default 5"),
        (("[parameters.d]", "[parameters.m]"), "already stands for something else"),
        (('meaning = "d"', ""), "lacks 'meaning'"),
        (('meaning = "d"', 'meaning = "d"\ncolour = 1'), "unknown entry 'colour'"),
        (("kernel =", "kernel = ="), "is not TOML"),
        (('kind = "int32"', 'kind = "int7"'), "not a kind of argument"),
        (('name = "only x"', 'name = "small"'), "two constraints are named 'small'"),
    ]:
        assert change[0] in TINY
        text = TINY.replace(*change, 1)
        file = tmp_path / f"{abs(hash(change))}.toml"
        file.write_text(text)
        with pytest.raises(SpaceError) as error:
            space.load("sgemm", str(file))
        assert complaint in str(error.value) and str(file) in str(error.value)


def test_a_missing_file_and_an_empty_space(tmp_path):
    with pytest.raises(SpaceError, match="cannot read"):
        space.load("sgemm", str(tmp_path / "nowhere.toml"))
    empty = tmp_path / "empty.toml"
    empty.write_text('kernel = "sgemm"\n[parameters]\n[[launches]]\n')
    with pytest.raises(SpaceError, match="the space is empty"):
        space.load("sgemm", str(empty))


def test_a_constraint_that_divides_by_zero_is_named(tmp_path, problem):
    tiny = load(tmp_path, TINY.replace("area <= 8", "8 % d == 0"))
    with pytest.raises(
        SpaceError, match=r"space\.toml: constraint 'small': .*'8 % d == 0' divides by zero"
    ):
        _ = tiny.region(problem, 75).size


# *** the shipped space ***


@pytest.mark.parametrize("arch", sorted(archs.ARCHITECTURES))
@pytest.mark.parametrize(
    "shape", ["1x1x1", "17x19x23", "1x8192x8192", "1023x1025x1027", "2048x2048x2048"]
)
def test_every_shape_has_a_default(shape, arch):
    shipped, problem = space.load("sgemm"), family("sgemm").parse(shape)
    config = defaults.default(problem, archs.get(arch).typical)
    assert shipped.is_valid(config, problem, arch)


def test_the_default_suits_the_size():
    # A tile of 128 x 256 gives a small problem to a handful of SMs.
    h200 = archs.get(90).typical
    tiles = {
        shape: defaults.default(family("sgemm").parse(shape), h200)["block_n"]
        for shape in ("256x256x256", "8192x8192x8192")
    }
    assert tiles["256x256x256"] <= 64 and tiles["8192x8192x8192"] >= 128


def test_the_seed_presets_are_valid_as_they_stand():
    shipped, problem = space.load("sgemm"), family("sgemm").parse("2048x2048x2048")
    for name in ("seed-v3", "seed-v3.1", "seed-v3.2"):
        assert shipped.explain(shipped.preset(name), problem, 75) is None
    values = shipped.values(shipped.preset("seed-v3.2"), problem, 75)
    assert (values["threads"], values["shared_bytes"]) == (256, 16640)


def test_only_the_contiguous_direction_restricts_vectors():
    # Row-major nn: m is no stride of anything.
    shipped = space.load("sgemm")
    sizes = [Region(shipped, family("sgemm").parse(f"{m}x256x512"), 75).size for m in (1471, 1472)]
    assert sizes[0] == sizes[1]


def test_a_huge_space_starts_at_once():
    shipped = space.load("sgemm")
    assert shipped.raw_size > 10**13
    region = shipped.region(family("sgemm").parse("2048x2048x2048"), 75)
    found = region.sample(10, np.random.default_rng(0))
    assert len(found) == 10 and region.size > 10**9


@settings(max_examples=25, deadline=None)
@given(number=st.integers(0, 10**18), arch=st.sampled_from([75, 80, 90, 120]))
def test_every_numbered_point_is_valid(number, arch):
    shipped, problem = space.load("sgemm"), family("sgemm").parse("1000x1000x1000")
    region = REGIONS.setdefault(arch, shipped.region(problem, arch))
    (config,) = region.unrank([number % region.size])
    assert shipped.explain(config, problem, arch) is None
    assert region.valid([config]) == [config]


REGIONS: dict[int, Region] = {}
