"""Where works stand in the network: the same every time, apart, finite, older works left."""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys

import numpy as np
import pytest

from normscope.views.literature.force_layout import EXACT, exact_repulsion, starting_positions
from normscope.views.literature.mesh_forces import mesh_repulsion
from normscope.views.literature.network_graph import NetworkGraph, network_graph
from normscope.views.literature.network_layout import network_layout
from normscope.views.literature.overlaps import separated

from .papers import many_works, reading_list, small_paper, work


def random_graph(count, edges, seed=0):
    """A reading list with citations at random."""
    chance = random.Random(seed)
    return network_graph(
        reading_list(count, [(chance.randrange(count), chance.randrange(count)) for _ in range(edges)])
    )


GRAPHS = {
    "paper": network_graph(small_paper()),
    "one work": network_graph(reading_list(1)),
    "two apart": network_graph(reading_list(2)),
    "nothing connected": network_graph(reading_list(40)),
    "separate parts": network_graph(reading_list(30, [(0, 1), (1, 2), (5, 6), (20, 21)])),
    "every edge twice, loops": network_graph(
        reading_list(5, [(0, 1), (0, 1), (1, 0), (2, 2), (3, 3), (3, 4)])
    ),
    "everyone cites everyone": network_graph(reading_list(12, itertools.permutations(range(12), 2))),
    "chain": network_graph(reading_list(80, [(i, i + 1) for i in range(79)])),
    "on the mesh": random_graph(EXACT + 1, 300),
    "many": network_graph(many_works(1200)),
}


@pytest.fixture(params=GRAPHS, scope="module")
def laid_out(request):
    graph = GRAPHS[request.param]
    return graph, network_layout(graph)


def closest(points, radii):
    """The least distance of two works, as a share of the sum of their radii."""
    at, size = np.array(points), np.array(radii)
    distance = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1)) / (size[:, None] + size[None])
    return np.min(distance[~np.eye(len(at), dtype=bool)], initial=np.inf)


def test_every_work_has_finite_places(laid_out):
    graph, layout = laid_out
    assert len(layout.force) == len(layout.years) == len(graph.works)
    assert all(math.isfinite(value) for point in layout.force + layout.years for value in point)


def test_no_two_works_overlap(laid_out):
    graph, layout = laid_out
    assert closest(layout.force, graph.radii) > 0.95
    assert closest(layout.years, graph.radii) > 1.0


def test_the_same_graph_gives_the_same_layout(laid_out):
    graph, layout = laid_out
    assert network_layout(graph) == layout


def test_years_run_from_left_to_right(laid_out):
    graph, layout = laid_out
    dated = sorted(
        (w.year, x) for w, (x, _) in zip(graph.works, layout.years, strict=True) if w.year is not None
    )
    for (year, x), (later, further) in itertools.pairwise(dated):
        assert further > x or year == later
    unknown = [x for w, (x, _) in zip(graph.works, layout.years, strict=True) if w.year is None]
    assert not unknown or max(unknown) < min(x for _, x in dated)
    places = [x for _, x in layout.ticks]
    assert places == sorted(places) and len({label for label, _ in layout.ticks}) == len(places)


def test_a_column_is_labelled_with_the_year_of_its_works():
    graph = GRAPHS["many"]
    layout = network_layout(graph)
    for w, (x, _) in zip(graph.works, layout.years, strict=True):
        label = min(layout.ticks, key=lambda tick: abs(tick[1] - x))[0]
        assert label == ("no year" if w.year is None else str(w.year))


def test_layouts_are_the_same_in_another_process():
    code = (
        "import hashlib; from tests.views.papers import many_works;"
        "from normscope.views.literature.network_graph import network_graph;"
        "from normscope.views.literature.network_layout import network_layout;"
        "layout = network_layout(network_graph(many_works(300)));"
        "print(hashlib.sha256(repr(layout).encode()).hexdigest())"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in (1, 2)
    }
    assert len(runs) == 1


def test_references_are_left_and_citing_works_right():
    graph = GRAPHS["paper"]
    force = network_layout(graph).force
    mean = {
        role: np.mean([x for (x, _), other in zip(force, graph.roles, strict=True) if other == role])
        for role in ("cited", "citing")
    }
    assert mean["cited"] < -20 < 20 < mean["citing"]
    assert force[graph.centre] == (0.0, 0.0)


def test_connected_works_are_nearer_than_others():
    parts = [
        (a, b) for part in range(6) for a, b in itertools.combinations(range(10 * part, 10 * part + 10), 2)
    ]
    for count in (60, EXACT + 10):  # the second has works that nothing cites, and is laid out on the mesh
        at = np.array(network_layout(network_graph(reading_list(count, parts))).force)
        distance = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
        together = np.mean([distance[a, b] for a, b in parts])
        apart = np.mean([distance[a, b] for a in range(10) for b in range(10, 60)])
        assert together < 0.6 * apart


# -- repulsion: the mesh against every pair ---------------------------------------------------


def pairwise(places, mass):
    away = places[:, None] - places[None]
    square = (away**2).sum(axis=2)
    np.fill_diagonal(square, 1.0)
    return (mass[:, None, None] * mass[None, :, None] * away / square[:, :, None]).sum(axis=1)


def test_exact_repulsion_is_the_sum_over_all_pairs():
    chance = np.random.default_rng(0)
    places, mass = chance.normal(size=(50, 2)) * 9, chance.uniform(1, 4, 50)
    found = exact_repulsion(places[:, 0].tolist(), places[:, 1].tolist(), mass.tolist())
    assert np.allclose(np.stack(found, axis=1), pairwise(places, mass), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_repulsion_on_the_mesh_is_close_to_the_sum_over_all_pairs(seed):
    chance = np.random.default_rng(seed)
    places, mass = chance.normal(size=(800, 2)) * [40, 15], chance.uniform(1, 4, 800)
    exact, mesh = pairwise(places, mass), mesh_repulsion(places, mass)
    size = np.hypot(exact[:, 0], exact[:, 1])
    error = np.hypot(*(mesh - exact).T) / np.median(size)
    assert np.median(error) < 0.1


def test_forces_on_the_mesh_cancel():
    chance = np.random.default_rng(5)
    places, mass = chance.uniform(-50, 50, size=(400, 2)), chance.uniform(1, 4, 400)
    force = mesh_repulsion(places, mass)
    assert np.all(np.abs(force.sum(axis=0)) < 1e-6 * np.abs(force).sum())


def test_far_from_a_crowd_the_mesh_is_exact():
    chance = np.random.default_rng(6)
    places = np.vstack([chance.normal(size=(200, 2)), [[300.0, 0.0]]])
    mass = np.ones(201)
    assert np.allclose(mesh_repulsion(places, mass)[-1], pairwise(places, mass)[-1], rtol=0.02, atol=0.01)


def test_works_on_one_point_are_moved_apart():
    points = separated([(3.0, 4.0)] * 40, [6.0] * 40)
    assert closest(points, [6.0] * 40) > 0.95


def test_what_does_not_overlap_is_not_moved():
    points = [(100.0 * i, 0.0) for i in range(30)]
    assert separated(points, [6.0] * 30) == points


def test_starting_positions_differ():
    for graph in GRAPHS.values():
        assert (
            len(set(starting_positions(graph))) >= len(graph.works) - 1
        )  # a work on the spiral may start at (0, 0)


# -- the graph ---------------------------------------------------------------------------------


def test_citations_of_the_paper_are_known_without_edges():
    graph = network_graph(small_paper(edges=()))
    cited = {b for a, b in graph.edges if a == graph.centre}
    citing = {a for a, b in graph.edges if b == graph.centre}
    assert {graph.roles[i] for i in cited} == {"cited", "both"}
    assert {graph.roles[i] for i in citing} == {"citing", "both"}
    assert len(cited) == 13 and len(citing) == 10


def test_loops_and_repetitions_are_left_out_and_unknown_works_counted():
    edges = [("arxiv:r.1", "arxiv:r.2")] * 3 + [
        ("arxiv:r.1", "arxiv:r.1"),
        ("arxiv:r.1", "arxiv:gone"),
        ("x", "y"),
    ]
    bare, graph = network_graph(small_paper(edges=())), network_graph(small_paper(edges=tuple(edges)))
    assert len(graph.edges) == len(bare.edges) + 1
    assert graph.unplaced == 2


def test_an_edge_may_use_any_identifier_of_a_work():
    paper = small_paper(
        further=(work("f.9", "Far", other_ids=("doi:10.5/far",)),), edges=(("doi:10.5/far", "arxiv:r.0"),)
    )
    graph = network_graph(paper)
    assert graph.unplaced == 0
    assert any(graph.works[a].id == "arxiv:f.9" and graph.works[b].id == "arxiv:r.0" for a, b in graph.edges)


def test_more_connections_are_drawn_larger():
    graph = GRAPHS["many"]
    by_degree = sorted(
        (d, r) for i, (d, r) in enumerate(zip(graph.degrees, graph.radii, strict=True)) if i != graph.centre
    )
    assert all(r <= s for (_, r), (_, s) in itertools.pairwise(by_degree))
    assert max(graph.radii) == graph.radii[graph.centre]


def test_a_graph_without_works_is_no_trouble():
    layout = network_layout(NetworkGraph((), (), ()))
    assert layout.force == () and layout.ticks == ()
