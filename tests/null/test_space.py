"""Search-space files, and the counting, numbering and sampling of their valid points."""

import itertools
import math
import os
import subprocess
import sys

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
ladder = ["one"]
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
why = "two are better"
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


SAMPLE = """
import numpy as np
from autotune import space
from autotune.problems.sgemm import Sgemm
region = space.load().region(Sgemm.parse("16x100x300"), 75)
print([config.json for config in region.sample(20, np.random.default_rng(0))])
"""


def test_a_seed_gives_the_same_points_in_every_process():
    """Sets of texts have another order in each; points must not be numbered by it."""
    samples = [
        subprocess.run(
            [sys.executable, "-c", SAMPLE],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2", "3")
    ]
    assert samples[0].count('"block_m"') == 20
    assert samples[0] == samples[1] == samples[2]


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


def test_an_architecture_has_starts_of_its_own(tmp_path, problem):
    tiny = load(
        tmp_path, TINY.replace('starts = ["one"]', 'starts = ["one"]\nstarts_of.80 = ["two"]')
    )
    one, two = (tiny.fitted(tiny.preset(name), problem, 80) for name in ("one", "two"))
    assert tiny.start_configs(problem, 75) == [one]
    assert tiny.start_configs(problem, 80) == [two, one]


def test_every_architecture_has_starts_that_serve_it():
    shipped = space.load("sgemm")
    for arch in (75, 80, 86, 89, 90, 100, 120):
        for name in shipped.starts_of[arch]:
            shape = "1x8192x8192" if "columns" in name else "8192x1x8192"
            problem = family("sgemm").parse(shape if "skinny" in name else "4096x4096x4096")
            config = shipped.fitted(shipped.preset(name), problem, arch)
            assert config is not None, (arch, name)
            assert config in shipped.start_configs(problem, arch)


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
        (
            ('starts = ["one"]', 'starts_of.80 = ["none"]'),
            "starts_of.80 names 'none', which is not",
        ),
        (('starts = ["one"]', 'starts_of.81 = ["one"]'), "starts_of: sm_81 is not known"),
        (('starts = ["one"]', "starts_of = 3"), "starts_of must be a table"),
        (('ladder = ["one"]', 'ladder = ["none"]'), "ladder names 'none', which is not a preset"),
        (('ladder = ["one"]', 'ladder = ["two"]'), "presets.two is a step of the ladder and lacks"),
        (('why = "two are better"', "why = 2"), "its why must be a text, got 2"),
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


def test_the_ladder_has_a_reason_for_each_step(tmp_path):
    tiny = load(tmp_path, TINY)
    assert (tiny.ladder, tiny.whys) == (("one",), {"one": "two are better"})
    assert "why" not in tiny.presets["one"], "it is no parameter"
    shipped = space.load("sgemm")
    assert shipped.ladder[:3] == ("naive", "shared-tile", "register-tile")


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


# *** methods ***

TWO_WAYS = """
kernel = "sgemm"
starts = ["wide", "tall"]
adaptable = ["b", "d"]
tile = ["size", "1"]
[parameters.method]
values = ["one", "two"]
meaning = "way"
[parameters.a]
values = [1, 2, 3]
meaning = "a"
only = "one"
[parameters.b]
values = [1, 2]
default = 2
meaning = "b"
[parameters.c]
values = [1, 2, 4, 8]
meaning = "c"
only = "two"
[parameters.d]
values = [0, 1]
meaning = "d"
only = "two"
[derived]
size = { one = "a * b", two = "c * b", meaning = "size" }
odd = { value = "a % 2", meaning = "of the one alone, since a is" }
[[constraints]]
name = "size"
rule = "size <= 4"
why = "a size of {size} is more than 4"
[[constraints]]
name = "odd"
rule = "odd or b == 1"
why = "a = {a} is even and b = {b} is not 1"
[[constraints]]
name = "large"
rule = "method != 'two' or m > 1"
why = "m = {m} is too small"
[[launches]]
entry = "k"
grid = ["size", "1", "1"]
block = ["32", "1", "1"]
shared_bytes = "0"
arguments = [{ kind = "operand", name = "a" }]
[presets.wide]
a = 3
b = 1
[presets.tall]
method = "two"
c = 4
d = 1
"""


def test_methods_count_and_list_what_trying_all_finds(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    region, valid = ways.region(problem, 75), brute(ways, problem)
    assert ways.raw_size == 3 * 2 + 2 * 4 * 2
    # One: a x b of (1, 1) (1, 2) (2, 1) (3, 1). Two: c x b to 4, either d.
    assert region.sizes == {"one": 4, "two": 10} and region.size == len(valid) == 14
    assert set(region.unrank(range(14))) == valid
    assert sorted(region.unrank([13, 0]), key=str) == sorted(region.unrank([0, 13]), key=str)
    assert region.unrank([13, 0]) == region.unrank([0, 13])[::-1]


def test_a_constraint_speaks_of_the_methods_that_have_its_parameters(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    names = {way: [c.name for c in ways.constraints_of(way)] for way in ways.methods}
    assert names == {"one": ["size", "odd", "large"], "two": ["size", "large"]}
    rows = {row[0].name: row[1:] for row in ways.region(problem, 75).removed(alone=True)}
    # size: (3, 2) of one; of two (4, 2) (8, 1) (8, 2), either d. odd: (2, 2).
    assert rows == {"size": (1 + 6, 1 + 6), "odd": (1, 1), "large": (0, 0)}
    small = family("sgemm").parse("1x4x8")
    assert ways.region(small, 75).sizes == {"one": 4, "two": 0}
    assert ways.explain(ways.preset("tall").but(b=1), small, 75) == "m = 1 is too small"


def test_parameters_of_another_method_keep_their_defaults(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    stray = ways.preset("wide").but(c=2)
    why = "c = 2 is of the method two; with method one it must be 1"
    assert ways.explain(stray, problem, 75) == why
    assert ways.region(problem, 75).valid([stray, ways.preset("wide")]) == [ways.preset("wide")]
    assert ways.fitted(stray, problem, 75) is None
    assert ways.settled(stray) == ways.preset("wide")
    assert ways.settled(ways.preset("tall")) == ways.preset("tall")


def test_a_config_without_a_method_means_the_default(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    assert ways.config({"a": 3, "b": 1}) == ways.preset("wide")


def test_what_a_method_does_not_know_is_not_among_its_values(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    one = ways.values(ways.preset("wide"), problem, 75)
    two = ways.values(ways.preset("tall"), problem, 75)
    assert (one["size"], two["size"]) == (3, 8)
    assert "odd" in one and "odd" not in two and "a" not in two and "c" not in one
    plan = ways.plan(ways.preset("wide"), problem, 75)
    assert plan.tile == (3, 1) and plan.launches[0].grid == (3, 1, 1)


def test_neighbours_reach_another_method(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    region, valid = ways.region(problem, 75), brute(ways, problem)
    for config in (ways.config({"b": 1}), ways.config({"method": "two", "b": 1})):
        for changes in (1, 2):
            expected = {c for c in valid if sum(c[n] != config[n] for n in c) == changes}
            assert set(region.neighbours(config, changes)) == expected
        assert {c["method"] for c in region.neighbours(config)} == {"one", "two"}


def test_methods_are_sampled_alike(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    region, rng = ways.region(problem, 75), np.random.default_rng(0)
    methods = [config["method"] for config in region.sample(8, rng)]
    assert methods.count("one") == methods.count("two") == 4
    # What one lacks the other gives.
    assert len(set(region.sample(12, rng))) == 12 and len(set(region.sample(99, rng))) == 14


def test_a_method_without_points_has_no_dimensions(tmp_path):
    region = load(tmp_path, TWO_WAYS).region(family("sgemm").parse("1x4x8"), 75)
    found = {parameter.name: parameter.values for parameter in region.parameters}
    assert found == {"method": ("one",), "a": (1, 2, 3), "b": (1, 2), "c": (1,), "d": (0,)}


def test_starts_are_fitted_by_what_their_method_has(tmp_path, problem):
    ways = load(tmp_path, TWO_WAYS)
    tall = ways.preset("tall").but(b=1)
    assert ways.start_configs(problem, 75) == [ways.preset("wide"), tall]


def test_faults_of_methods_are_named(tmp_path):
    for change, complaint in [
        (('only = "one"', 'only = "three"'), "'three' is not a method; possible are one, two"),
        (("size <= 4", "a + c <= 4"), "'size' speaks of no method"),
        (('one = "a * b"', 'three = "a * b"'), "unknown entry 'three'"),
        (('method = "two"\nc = 4', 'method = "one"\nc = 4'), "presets.tall has values"),
        (("m = {m} is", "a = {a} is"), "'a', which two lacks"),
        (('tile = ["size", "1"]', 'tile = ["size"]'), "tile needs two expressions"),
    ]:
        assert change[0] in TWO_WAYS
        with pytest.raises(SpaceError, match=complaint):
            load(tmp_path, TWO_WAYS.replace(*change, 1))
        space.load.cache_clear()


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
    # Row-major nn: m is no stride of anything. Both leave more than 16 rows beyond all but the
    # smallest tiles, so that `rest` has the same values.
    shipped = space.load("sgemm")
    sizes = [Region(shipped, family("sgemm").parse(f"{m}x256x512"), 75).size for m in (1471, 1468)]
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


# *** the shipped methods ***


def test_what_all_methods_share_is_known():
    """A parameter without `only` is one that every method's template reads."""
    shared = {p.name for p in space.load("sgemm").parameters if not p.only}
    assert shared == {"method", "min_blocks", "split_k", "split_k_mode"}


def test_the_default_for_a_short_side_streams():
    h200 = archs.get(90).typical
    for shape, layout, preset in [
        ("1x8192x8192", "nn", "skinny-columns-split"),
        ("16x8192x8192", "nn", "skinny-columns-split"),
        ("8192x16x8192", "nn", "skinny-rows"),
        ("16x512x500000", "nn", "skinny-columns-deep"),
    ]:
        problem = family("sgemm").parse(shape, layout=layout)
        config = defaults.default(problem, h200)
        assert config == space.load("sgemm").fitted(space.load("sgemm").preset(preset), problem, 90)


def test_a_side_that_is_not_short_is_refused_with_a_reason():
    shipped = space.load("sgemm")
    why = shipped.explain(shipped.preset("skinny-columns"), family("sgemm").parse("64x256x256"), 90)
    assert why == "min(m, n) = 64 is more than the 32 that a thread keeps sums of"


@pytest.mark.parametrize("short", [1, 2, 7, 32])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_short_side_has_a_stream(short, layout):
    shipped = space.load("sgemm")
    for sizes in ((short, 100, 33), (100, short, 64), (short, 4096, 4096), (32, short, 1)):
        m, n, k = sizes
        problem = family("sgemm").parse(f"{m}x{n}x{k}", layout=layout)
        assert "skinny" in {config["method"] for config in shipped.start_configs(problem, 75)}


def test_counts_pass_64_bits():
    shipped = space.load("sgemm")
    assert shipped.raw_size > 2**63
    problem = family("sgemm").parse("16x1000x512")
    for constraint, broken, _ in shipped.region(problem, 90).removed():
        assert 0 <= broken <= shipped.raw_size, constraint.name
